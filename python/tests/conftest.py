"""CONSILIENCE names the command's binary; the package is on the path."""

import os
import subprocess

import pytest


@pytest.fixture(scope="session")
def command():
    """Run the command and give back what it prints."""

    def run(*arguments, cwd=None):
        done = subprocess.run([os.environ["CONSILIENCE"], *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
