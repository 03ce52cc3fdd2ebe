"""The wheel has the command in it: the script that pip makes, and ``python -m consilience``."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import tomllib

import consilience
import pytest

ROOT = pathlib.Path(__file__).parents[2]
#: What pip writes into a script for an entry point.
SCRIPT = (
    "import sys\nfrom {module} import {function}\nif __name__ == '__main__':\n"
    "    sys.exit({function}())\n"
)


@pytest.fixture(params=["script", "module"])
def own(request, tmp_path):
    """The command line of the command, as the wheel installs it and as a module."""
    if request.param == "module":
        return [sys.executable, "-m", "consilience"]
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"][
        "consilience"
    ]
    module, function = entry.split(":")
    script = tmp_path / "consilience"
    script.write_text(SCRIPT.format(module=module, function=function))
    return [sys.executable, str(script)]


def run(own, *arguments, **more):
    return subprocess.run([*own, *map(str, arguments)], capture_output=True, text=True, **more)


def test_it_says_its_version(own):
    done = run(own, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"consilience {consilience.__version__}\n",
        "",
    )


def test_it_is_the_command(own, command, tmp_path):
    for arguments in [("--help",), ("list",), ("fields",), ("run", "--help")]:
        done = run(own, *arguments)
        assert done.returncode == 0 and done.stdout == command(*arguments), arguments
    text = '[target]\nmodel = "gaussian"\n[[client]]\nmean = [0.0]\nprecision = [[1.0]]\n'
    text += '[sampler]\nname = "lmc"\nstep = 0.1\n[run]\niterations = 500\n'
    (tmp_path / "run.toml").write_text(text)
    digest = re.compile(r'"digest": "(\w+)"')
    found = [
        digest.search(told)[1]
        for told in (
            run(own, "run", "run.toml", "--json", cwd=tmp_path).stdout,
            command("run", "run.toml", "--json", cwd=tmp_path),
        )
    ]
    assert found[0] == found[1]


def test_its_exit_codes_are_those_of_the_command(own, tmp_path):
    (tmp_path / "run.toml").write_text("[target]\n")
    binary = [os.environ["CONSILIENCE"]]
    for arguments, said in [
        (("run", "--no-such-option"), "--no-such-option"),
        (("run", tmp_path / "run.toml"), "error: "),
        (("summary", tmp_path / "nothing"), "nothing"),
    ]:
        done, expected = run(own, *arguments), run(binary, *arguments)
        assert said in done.stderr and done.stderr == expected.stderr
        assert done.returncode == expected.returncode != 0


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_keeps_what_was_drawn(own, tmp_path):
    text = '[target]\nmodel = "gaussian"\n[[client]]\nmean = [0.0]\nprecision = [[1.0]]\n'
    text += (
        '[sampler]\nname = "lmc"\nstep = 0.1\n[run]\niterations = 4_000_000_000\nburn_in = 0\n'
        "thin = 1000\n"
    )
    (tmp_path / "run.toml").write_text(text)
    process = subprocess.Popen(
        [*own, "run", "run.toml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = process.stdout.readline()  # it has begun
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopping" in errors
    assert "stopped before the end" in said + out


def test_a_reader_that_goes_away_is_no_failure(own):
    process = subprocess.Popen([*own, "fields"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 0
