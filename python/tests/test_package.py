"""What the package says of itself is so: examples run, types hold, names are documented."""

import doctest
import importlib
import pathlib
import pkgutil
import re
import sys
import tomllib

import consilience
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
MODULES = [
    "consilience",
    *(
        f"consilience.{m.name}"
        for m in pkgutil.iter_modules(consilience.__path__)
        if m.name != "_consilience"
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    library = {
        "consilience.flower": "flwr",
        "consilience.jax": "jax",
        "consilience.torch": "torch",
    }.get(name)
    if library is not None:
        pytest.importorskip(library, reason=f"{library} is not installed")
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0


def blocks(file):
    return re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)


DOCUMENTS = [
    "README.md",
    "python/README.md",
    *sorted(str(file.relative_to(ROOT)) for file in (ROOT / "docs/src").glob("*.md")),
]


@pytest.mark.parametrize("file", [file for file in DOCUMENTS if blocks(file)])
def test_examples_in_documents_run(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}  # one for all blocks of a document, as its reader has
    for block in blocks(file):
        for library in re.findall(
            r"^import (torch|jax|flwr)\b|^from (?:consilience\.)?(torch|jax|flwr|flower) import",
            block,
            re.MULTILINE,
        ):
            name = next(filter(None, library)).replace("flower", "flwr")
            pytest.importorskip(name, reason=f"an example of {file} needs {name}")
        exec(compile(block, file, "exec"), names)


def test_nothing_says_that_the_package_is_published():
    """It is not in the package index: documents say how its wheel is built."""
    folders = ["*", "docs/**/*", "examples/**/*", "python/**/*", "crates/**/*", "xtask/**/*"]
    files = [
        file
        for folder in folders
        for file in ROOT.glob(folder)
        if file.suffix in (".md", ".py", ".rs", ".toml")
    ]
    # A wheel's file has a path before the name, and more behind it.
    published = re.compile(
        r"(pip3?|uv|conda) (install|add)\b[^`#]*(?<![\w./-])consilience(?![\w*-])"
    )
    assert published.search("pip install flwr consilience  # both")
    assert not published.search("pip install target/wheels/consilience-*.whl")
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        if file != pathlib.Path(__file__)
        for line in file.read_text().splitlines()
        if published.search(line)
    ]
    assert len(files) > 100 and not found
    told = [
        "README.md",
        "python/README.md",
        "docs/src/first-posterior.md",
        "examples/flower/README.md",
    ]
    for document in told:
        text = (ROOT / document).read_text()
        assert "cargo xtask wheel" in text and "target/wheels/consilience-*.whl" in text, document
    example = tomllib.loads((ROOT / "examples/flower/pyproject.toml").read_text())
    # Flower would look for them in the package index at every run.
    assert example["project"]["dependencies"] == []


def test_readmes_have_examples():
    assert blocks("README.md") and blocks("python/README.md")


def test_types_hold():
    api = pytest.importorskip("mypy.api")
    told, errors, status = api.run(
        [
            "--strict",
            "--no-incremental",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            str(ROOT / "python/consilience"),
        ]
    )
    assert status == 0, told + errors


def test_stubs_name_what_is_compiled():
    stub = (ROOT / "python/consilience/_consilience.pyi").read_text()
    named = set(re.findall(r"^(?:class|def) (\w+)|^(\w+):", stub, re.MULTILINE))
    named = {a or b for a, b in named} - {
        "Floats",
        "_Bringing",
        "_Brought",
        "_Meeting",
        "_Stated",
    }
    compiled = {
        name
        for name in dir(consilience._consilience)
        if not name.startswith("__") or name == "__version__"
    }
    assert named == compiled
    for cls in re.findall(r"^class (\w+):\n((?:    .*\n)+)", stub, re.MULTILINE):
        methods = set(re.findall(r"def (\w+)\(", cls[1])) - {"__new__"}
        assert {
            m for m in vars(getattr(consilience._consilience, cls[0])) if not m.startswith("__")
        } == methods, cls[0]


def test_every_public_name_is_documented():
    for name in consilience.__all__:
        if name not in ("__version__",):
            assert getattr(consilience, name).__doc__, name


def test_nothing_heavy_is_imported():
    import subprocess

    code = (
        "import sys, consilience; print([m for m in ('pandas', 'polars', 'pyarrow', 'xarray', "
        "'arviz', 'IPython', 'jax', 'torch') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_a_compressor_is_unbiased_within_its_omega():
    v = np.linspace(-1, 2, 40)
    qsgd = consilience.compressor("qsgd(4)")
    decoded = np.array([qsgd.decode(qsgd.encode(v, seed=s)) for s in range(400)])
    errors = ((decoded - v) ** 2).sum(1)
    assert errors.mean() < qsgd.omega(40) * (v**2).sum()
    spread = decoded.std(0, ddof=1) / 20
    assert np.all(
        np.abs(decoded.mean(0) - v) < 5.5 * spread + 1e-12
    )  # about 1e-6 false alarms for all coordinates
    assert qsgd.encode(v, seed=1) == qsgd.encode(v, seed=1) != qsgd.encode(v, seed=2)
    sent = qsgd.encode(v, seed=1)
    assert (sent.bits + 7) // 8 == len(sent)
    with pytest.raises(consilience.Refused):
        qsgd.decode(bytes(sent) + b"\x00", 40)
    with pytest.raises(consilience.ConfigError):
        consilience.compressor("qsgd(0)").encode(v, seed=1)


def test_measures():
    draws = np.random.default_rng(3).normal(size=(4, 300, 2))
    assert np.all(consilience.measures.rhat(draws) < 1.05) and consilience.measures.rhat(
        draws[:, :, 0]
    ).shape == (1,)
    apart = draws + np.arange(4)[:, None, None]
    assert np.all(consilience.measures.rhat(apart) > 1.3)
    assert consilience.measures.w2(draws[:, :30], draws[:, :30] + [3.0, 4.0]) == pytest.approx(5.0)
    assert consilience.measures.gaussian_w2(draws, draws + [3.0, 4.0]) == pytest.approx(5.0)
    with pytest.raises(consilience.DataError):
        consilience.measures.w2(np.zeros((3, 2)), np.zeros((3, 1)))


def test_the_exact_law_is_that_of_the_command(command, tmp_path):
    import json

    text = (
        '[target]\nmodel = "gaussian"\n[[client]]\nmean = [0.0, 1.0]\nprecision = [[2.0, 0.5], '
        "[0.5, 1.0]]\n[[client]]\nmean = [3.0, 1.0]\nprecision = [[1.0, 0.0], [0.0, 4.0]]\n"
    )
    text += '[sampler]\nname = "fald"\nstep = 0.02\n'
    (tmp_path / "run.toml").write_text(text)
    told = json.loads(command("exact", "run.toml", "--json", cwd=tmp_path))
    law = consilience.exact(config=tmp_path / "run.toml")
    for ours, theirs in [(law.posterior, told["posterior"]), (law.stationary, told["stationary"])]:
        assert np.array_equal(ours.mean, theirs["mean"]) and np.array_equal(
            ours.covariance, theirs["covariance"]
        )
    assert not np.array_equal(law.posterior.covariance, law.stationary.covariance)


def test_a_comparison_is_that_of_the_command(command, tmp_path):
    import json

    common = (
        'seed = 4\n[target]\nmodel = "gaussian"\n[[client]]\nmean = [0.0]\nprecision = [[2.0]]\n'
        "[run]\niterations = 1000\n"
    )
    for name, sampler in [("a", "lmc"), ("b", "qlsd")]:
        (tmp_path / f"{name}.toml").write_text(
            f'{common}[sampler]\nname = "{sampler}"\nstep = 0.1\n'
        )
    told = json.loads(command("compare", "a.toml", "b.toml", "--json", cwd=tmp_path))
    found = consilience.compare([tmp_path / "a.toml", tmp_path / "b.toml"], progress=False)
    for ours, theirs in zip(found.runs, told["runs"]):
        for key in [
            "sampler",
            "mean_error_sd",
            "sd_error",
            "w2",
            "ess",
            "bits_up",
            "bits_down",
            "survey_bits",
            "exchanges",
            "rows_evaluated",
        ]:
            assert ours[key] == theirs[key], key
    assert found.report(tmp_path / "page.html").read_text().startswith(
        "<!DOCTYPE html>"
    ) and "qlsd" in repr(found)
    with pytest.raises(consilience.ConfigError, match="sites"):
        other = tmp_path / "c.toml"
        other.write_text(
            (tmp_path / "a.toml").read_text().replace("mean = [0.0]", 'name = "x"\nmean = [0.0]')
        )
        consilience.compare([tmp_path / "a.toml", other], progress=False)


def test_a_reproduction_runs_and_is_kept(tmp_path):
    done = consilience.reproduce("toy-gaussian", size="tiny", out=tmp_path / "toy")
    assert (
        done.claims
        and done.readings[0]["numbers"]
        and done.page.is_file()
        and "toy-gaussian" in repr(done)
    )
    with pytest.raises(consilience.ConfigError, match="did you mean"):
        consilience.reproduce("toy-gausian")
    with pytest.raises(consilience.ConfigError, match="no size"):
        consilience.reproduce("toy-gaussian", size="huge")


def test_the_bar_says_how_far_it_is(capsys, monkeypatch):
    from consilience import _progress

    bar = _progress.Bar("sampling")
    bar(0, 200)
    bar(50)
    bar.close()
    written = capsys.readouterr().err
    assert (
        "[####################" not in written
        and "sampling [##########..." in written
        and " 25% " in written
    )
    assert _progress.shower(True, "x") is None  # nobody sees it here
    assert _progress.shower(False, "x") is None


def test_bias_and_choice_stand_beside_the_draws():
    clients = {
        "a": {"mean": [1.0, 0.0], "precision": [[1.0, 0.0], [0.0, 0.25]]},
        "b": {"mean": [-1.0, 4.0], "precision": [[1.0, 0.0], [0.0, 0.25]]},
    }
    settings = {"iterations": 4000, "progress": False}
    biased = consilience.sample(
        "gaussian", clients, sampler="lmc", step=0.2, bias="halve", **settings
    )
    assert biased.bias is not None and not biased.bias["exact"]
    measured = biased.bias["measured"]
    # the law: variance 1 / (c (1 - h c / 2)), extrapolated from h = 0.2 and 0.1
    assert measured["sd_ratio"][0] == pytest.approx(1.134, abs=0.03)
    assert measured["sd_ratio"][1] == pytest.approx(1.027, abs=0.03)
    assert biased.choice is None
    exact = consilience.sample("gaussian", clients, **settings)
    assert exact.bias is not None and exact.bias["exact"]
    assert exact.choice is not None and exact.choice["chosen"] == exact.sampler == "imh"
    assert exact.exchanges["sampling"] < 20 < biased.exchanges["sampling"]
