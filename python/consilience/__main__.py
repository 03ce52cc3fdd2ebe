"""Be the command ``consilience``: the script that the wheel installs, and ``python -m
consilience``.
"""

from __future__ import annotations

import signal
import sys

from . import _consilience


def main() -> int:
    """Do what the command line asks; the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Python would wait for the command's end to raise it. The command itself listens while
        # there is something to keep.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _consilience.command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
