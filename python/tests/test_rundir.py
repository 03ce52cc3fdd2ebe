"""A run directory opens in ArviZ with no glue, and ArviZ says what the command prints.

CONSILIENCE names the command's binary.
"""

import json
import os
import re
import subprocess
import warnings

import arviz as az
import numpy as np
import pytest
import xarray as xr

COMMAND = os.environ["CONSILIENCE"]

SITES = """
seed = 3
[target]
model = "logistic"
prior = { law = "gaussian", variance = 6.25 }
[[client]]
name = "north"
rows = [[0.2, 1.0, 1], [-1.1, 0.3, 0], [0.7, -0.4, 1], [-0.5, 0.1, 0]]
[[client]]
name = "south"
rows = [[1.3, 0.2, 1], [0.4, -1.6, 0], [-0.9, 0.8, 1], [0.1, -0.2, 0]]
[sampler]
name = "lmc"
step = 0.1
[run]
chains = 3
iterations = 2000
"""


def consilience(*arguments, cwd=None):
    done = subprocess.run([COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


CURRENT = not az.__version__.startswith("0.")


def open_store(path):
    """ArviZ 1.x opens it; for 0.x, what its own message tells users of Zarr v3 to do."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if CURRENT:
            return az.from_zarr(str(path))
        return az.InferenceData.from_datatree(xr.open_datatree(path, engine="zarr"))


def groups_of(idata):
    return set(idata.children) if CURRENT else set(idata.groups())


def summarise(idata):
    """All numbers of the printed table, unrounded: as they are in ArviZ 1.x; in 0.x, intervals and
    tails have other definitions and are asked for.
    """
    if CURRENT:
        return az.summary(idata, round_to="none")
    funcs = {
        "eti89_lb": lambda x: np.quantile(x, 0.055),
        "eti89_ub": lambda x: np.quantile(x, 0.945),
    }
    table = az.summary(idata, round_to="none", stat_funcs=funcs)
    tails = [az.ess(idata, method="quantile", prob=prob) for prob in (1 - 0.89, 0.89)]
    table["ess_tail"] = [min(float(tail[name]) for tail in tails) for name in table.index]
    return table


def rows_of(text):
    """The rows of a printed table: the name, then the numbers as they are printed."""
    lines = text[text.index("\nparameter ") + 1 :].split("\n\n")[0].splitlines()
    rows = [re.split(r" +(?=-?\d+\.\d{3})", line, maxsplit=1) for line in lines[1:]]
    return {name: numbers.replace("|", " ").split() for name, numbers in rows}


def printed(summary, name):
    row = summary.loc[name]
    numbers = [row["mean"], row["sd"], row["eti89_lb"], row["eti89_ub"], row["r_hat"]]
    return [f"{x:.3f}" for x in numbers] + [f"{row['ess_bulk']:.0f}", f"{row['ess_tail']:.0f}"]


@pytest.fixture(scope="module")
def main_job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("main")
    text = consilience("--iterations", 6000, "--seed", 5, cwd=folder)
    return text, folder / "runs" / "heart-disease-5"


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    (folder / "run.toml").write_text(SITES)
    answer = json.loads(consilience("run", "run.toml", "--json", "--out", "kept", cwd=folder))
    return answer, folder / "kept"


def test_the_summary_of_arviz_is_the_printed_one(main_job):
    text, path = main_job
    table = rows_of(text)
    assert len(table) == 22 and "sex: male" in table
    ours = summarise(open_store(path / "draws.zarr"))
    pooled = summarise(open_store(path / "reference.zarr"))
    table = {
        name.replace("/", "_"): numbers for name, numbers in table.items()
    }  # a slash would make it a path
    assert list(ours.index) == list(pooled.index) and sorted(ours.index) == sorted(table)
    for name, numbers in table.items():
        assert numbers[:7] == printed(ours, name), name
        assert numbers[7:9] == printed(pooled, name)[:2], name


def test_summary_prints_the_same_table_again(main_job):
    text, path = main_job
    assert rows_of(consilience("summary", path)) == rows_of(text)


def test_dimensions_statistics_and_attributes(sites):
    answer, path = sites
    assert answer["run_directory"] == "kept"
    idata = open_store(path / "draws.zarr")
    assert groups_of(idata) == {"posterior", "sample_stats"}
    assert dict(idata.posterior.sizes) == {"chain": 3, "draw": 1800}
    assert list(idata.posterior["x1"].dims) == ["chain", "draw"]
    assert idata.posterior["draw"].values.tolist() == list(range(1800))
    means = [float(idata.posterior[name].mean()) for name in answer["parameters"]]
    assert np.allclose(means, answer["mean"], rtol=0, atol=1e-12)

    stats = idata.sample_stats
    assert set(stats.data_vars) == {
        "lp",
        "iteration",
        "bits_up",
        "bits_down",
        "gradients",
        "participants",
    }
    assert stats["iteration"].values[0].tolist() == list(range(201, 2001))
    assert (stats["participants"].values == 2).all()
    assert stats["bits_up"].values[:, -1].sum() == answer["bits"]["up"]
    assert (np.diff(stats["bits_down"].values) > 0).all()
    theta = np.stack([idata.posterior[name].values for name in ["intercept", "x1", "x2"]], axis=-1)
    rows = np.array(
        [
            row
            for line in SITES.splitlines()
            if line.startswith("rows")
            for row in json.loads(line.split("=")[1])
        ]
    )
    predictor = theta @ np.column_stack([np.ones(len(rows)), rows[:, :2]]).T
    log_density = (rows[:, 2] * predictor - np.logaddexp(0, predictor)).sum(-1) - (theta**2).sum(
        -1
    ) / 12.5
    assert np.allclose(stats["lp"].values, log_density, rtol=0, atol=1e-9)

    attributes = idata.posterior.attrs
    assert attributes["inference_library"] == "consilience"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", attributes["created_at"])
    assert attributes["tuning_steps"] == 200 and attributes["sampling_time"] > 0
    assert json.loads(attributes["config"])["run"]["iterations"] == 2000


def test_predictions_are_those_of_the_draws(sites):
    _, path = sites
    new = np.array([[0.5, -1.0], [2.0, 0.25]])
    (path.parent / "new.csv").write_text("x2,x1\n" + "".join(f"{b},{a}\n" for a, b in new))
    answer = json.loads(consilience("predict", path, "--data", path.parent / "new.csv", "--json"))
    posterior = open_store(path / "draws.zarr").posterior
    theta = np.stack(
        [posterior[name].values.ravel() for name in ["intercept", "x1", "x2"]], axis=-1
    )
    probability = 1 / (1 + np.exp(-theta @ np.column_stack([np.ones(2), new]).T))
    assert np.allclose(answer["mean"], probability.mean(0), rtol=0, atol=1e-10)
    assert np.allclose(answer["lower"], np.quantile(probability, 0.055, axis=0), rtol=0, atol=1e-10)
    assert np.allclose(answer["upper"], np.quantile(probability, 0.945, axis=0), rtol=0, atol=1e-10)


def test_many_parameters_are_one_variable_with_names(tmp_path):
    d = 300
    rows = [",".join(["name" if k == 0 else f"c{k}" for k in range(d)])]
    rows += [",".join(str((i * 7 + k) % 5 / 5) for k in range(d)) for i in range(6)]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    config = (
        '[target]\nmodel = "isotropic"\n[[client]]\nfile = "rows.csv"\n[sampler]\nname = "lmc"\n'
        "step = 0.05\n[run]\niterations = 60\n"
    )
    (tmp_path / "run.toml").write_text(config)
    answer = json.loads(
        consilience("run", tmp_path / "run.toml", "--out", tmp_path / "kept", "--json")
    )
    parameters = open_store(tmp_path / "kept" / "draws.zarr").posterior["parameters"]
    assert parameters.dims == ("chain", "draw", "parameter")
    assert parameters["parameter"].values.tolist() == answer["parameters"]
    assert np.allclose(
        parameters.mean(["chain", "draw"]).values, answer["mean"], rtol=0, atol=1e-12
    )
