"""Show how far a run is: a bar on a terminal or in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

WIDTH = 40


def shower(progress: bool, title: str) -> "Bar | None":
    """A bar where somebody can see it."""
    if not progress:
        return None
    if _in_notebook():
        return NotebookBar(title)
    return Bar(title) if sys.stderr.isatty() else None


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


class Bar:
    """A line of text that is written over."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.total = 0
        self.started = time.monotonic()

    def __call__(self, done: int, total: int | None = None) -> None:
        if total is not None:
            self.total = total
        self.show(self.text(done))

    def text(self, done: int) -> str:
        share = min(done / self.total, 1.0) if self.total else 0.0
        full = int(share * WIDTH)
        passed = time.monotonic() - self.started
        left = f"{passed * (1 - share) / share:.0f} s left" if share > 0 else "just started"
        return f"{self.title} [{'#' * full}{'.' * (WIDTH - full)}] {share:4.0%} {left}"

    def show(self, text: str) -> None:
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


class NotebookBar(Bar):
    """The same line in the output of a notebook's cell."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.handle: Any = None

    def show(self, text: str) -> None:
        from IPython.display import HTML, display

        page = HTML(f"<pre style='margin:0'>{text}</pre>")
        if self.handle is None:
            self.handle = display(page, display_id=True)
        elif self.handle is not None:
            self.handle.update(page)

    def close(self) -> None:
        if self.handle is not None:
            from IPython.display import HTML

            self.handle.update(HTML(""))
