"""CONSILIENCE names the command's binary; the package is on the path."""

import os
import pathlib
import re
import signal
import subprocess

import pytest


@pytest.fixture(scope="session")
def command():
    """Run the command and give back what it prints."""

    def run(*arguments, cwd=None):
        done = subprocess.run(
            [os.environ["CONSILIENCE"], *map(str, arguments)],
            cwd=cwd,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def chapter():
    """Run what the chapter on models of one's own shows of a library."""

    def run(library):
        path = pathlib.Path(__file__).parents[2] / "docs/src/own-model.md"
        blocks = [
            block
            for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
            if block.startswith(f"import {library}")
        ]
        assert len(blocks) == 1
        shown = {"__name__": "example"}
        exec(compile(blocks[0], str(path), "exec"), shown)
        return shown

    return run


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """A shell that starts the tests in the background tells them to ignore Ctrl-C, and Python would
    obey.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
