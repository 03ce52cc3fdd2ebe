"""What the package says of itself is so: examples run, types hold, names are documented."""

import doctest
import importlib
import pathlib
import pkgutil
import re
import sys

import consilience
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
MODULES = ["consilience", *(f"consilience.{m.name}" for m in pkgutil.iter_modules(consilience.__path__) if m.name != "_consilience")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


@pytest.mark.parametrize("file", ["README.md", "python/README.md"])
def test_examples_in_readmes_run(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, file, "exec"), {"__name__": "example"})


def test_types_hold():
    api = pytest.importorskip("mypy.api")
    told, errors, status = api.run(["--strict", "--no-incremental", "--config-file", str(ROOT / "pyproject.toml"), str(ROOT / "python/consilience")])
    assert status == 0, told + errors


def test_stubs_name_what_is_compiled():
    stub = (ROOT / "python/consilience/_consilience.pyi").read_text()
    named = set(re.findall(r"^(?:class|def) (\w+)|^(\w+):", stub, re.MULTILINE))
    named = {a or b for a, b in named if not (a or b).startswith("_Stated")} - {"Floats"}
    compiled = {name for name in dir(consilience._consilience) if not name.startswith("__") or name == "__version__"}
    assert named == compiled
    for cls in re.findall(r"^class (\w+):\n((?:    .*\n)+)", stub, re.MULTILINE):
        methods = set(re.findall(r"def (\w+)\(", cls[1])) - {"__new__"}
        assert {m for m in vars(getattr(consilience._consilience, cls[0])) if not m.startswith("__")} == methods, cls[0]


def test_every_public_name_is_documented():
    for name in consilience.__all__:
        if name not in ("__version__",):
            assert getattr(consilience, name).__doc__, name


def test_nothing_heavy_is_imported():
    import subprocess

    code = "import sys, consilience; print([m for m in ('pandas', 'polars', 'pyarrow', 'xarray', 'arviz', 'IPython') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_compressor_is_unbiased_within_its_omega():
    v = np.linspace(-1, 2, 40)
    qsgd = consilience.compressor("qsgd(4)")
    decoded = np.array([qsgd.decode(qsgd.encode(v, seed=s)) for s in range(400)])
    errors = ((decoded - v) ** 2).sum(1)
    assert errors.mean() < qsgd.omega(40) * (v**2).sum()
    spread = decoded.std(0, ddof=1) / 20
    assert np.all(np.abs(decoded.mean(0) - v) < 5.5 * spread + 1e-12)  # about 1e-6 false alarms for all coordinates
    assert qsgd.encode(v, seed=1) == qsgd.encode(v, seed=1) != qsgd.encode(v, seed=2)
    sent = qsgd.encode(v, seed=1)
    assert (sent.bits + 7) // 8 == len(sent)
    with pytest.raises(consilience.Refused):
        qsgd.decode(bytes(sent) + b"\x00", 40)
    with pytest.raises(consilience.ConfigError):
        consilience.compressor("qsgd(0)").encode(v, seed=1)


def test_measures():
    draws = np.random.default_rng(3).normal(size=(4, 300, 2))
    assert np.all(consilience.measures.rhat(draws) < 1.05) and consilience.measures.rhat(draws[:, :, 0]).shape == (1,)
    apart = draws + np.arange(4)[:, None, None]
    assert np.all(consilience.measures.rhat(apart) > 1.3)
    assert consilience.measures.w2(draws, draws + [3.0, 4.0]) == pytest.approx(5.0)
    assert consilience.measures.gaussian_w2(draws, draws + [3.0, 4.0]) == pytest.approx(5.0)
    with pytest.raises(consilience.DataError):
        consilience.measures.w2(np.zeros((3, 2)), np.zeros((3, 1)))
