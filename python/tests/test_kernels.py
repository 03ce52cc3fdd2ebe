"""The PTX that is kept for GPUs is that of its source."""

import pathlib
import subprocess
import sys

import pytest

COMPILE = pathlib.Path(__file__).parents[2] / "crates" / "cuda" / "kernels" / "compile.py"
#: How `compile.py` ends where there is no NVRTC.
MISSING = 77


def test_the_ptx_on_record_is_that_of_its_source():
    done = subprocess.run(
        [sys.executable, "-B", COMPILE, "--check"], capture_output=True, text=True
    )
    if done.returncode == MISSING:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    for name in COMPILE.parent.glob("*.cu"):
        assert f"{name.stem}.ptx is that of {name.stem}.cu" in done.stdout
