"""A result predicts raw rows as the command does, and outlives the session that made it: saved,
loaded, pickled and copied.
"""

import copy
import json
import pathlib
import pickle
import subprocess
import os

import consilience
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

QUICK = dict(iterations=400, chains=2, seed=3, progress=False)
DATA = pathlib.Path(__file__).parents[2] / "data"
HEADER = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num".split(",")
rng = np.random.default_rng(11)


def site(rows):
    dose, sex = rng.normal(70, 12, rows), rng.choice(["f", "m"], rows)
    ill = np.where(rng.random(rows) < 1 / (1 + np.exp(-(dose - 70) / 6)), "yes", "no")
    dose[rng.random(rows) < 0.1] = np.nan
    return {
        "dose": dose,
        "sex": [None if rng.random() < 0.1 else str(s) for s in sex],
        "ill": [str(word) for word in ill],
    }


SITES = {"north": site(70), "south": site(50)}
FORMULA = "ill == yes ~ dose + sex"


@pytest.fixture(scope="module")
def result():
    return consilience.sample(FORMULA, SITES, **QUICK)


def test_a_result_says_whether_its_model_fits(tmp_path, result):
    check = result.check
    assert check["fit"]["measure"] == "AUC" and 0.5 < check["fit"]["lower"] < 1
    assert [site["name"] for site in check["sites"]] == list(SITES)
    assert all(0 < statistic["p"] <= 1 for statistic in check["statistics"])
    assert consilience.load(result.save(tmp_path / "checked")).check == check


def test_a_site_draws_its_effects_and_predicts_its_wards(tmp_path):
    wards = {name: dict(table, ward=list("uvw" * 40)[: len(table["sex"])]) for name, table in
             SITES.items()}
    result = consilience.sample("ill == yes ~ 1 + (1 | ward)", wards, **QUICK)
    own = result.effects("north")
    assert own.groups == own.names == list(own) == ["u", "v", "w"]
    assert own["u"].shape == result.draws.shape[:2] and own.draws.shape[2] == 3
    assert not np.array_equal(own["u"], result.effects("south")["u"])
    new = {"ward": ["v", "elsewhere"]}
    known, unseen = result.predict(new, site="north"), result.predict(new)
    expected = 1 / (1 + np.exp(-result.draws[:, :, 0] - own["v"]))
    assert np.isclose(known.mean[0], expected.mean(), atol=1e-12)
    assert np.isclose(known.mean[1], unseen.mean[1]) and not np.isclose(*known.mean)
    # rows that are in no files are given again: the site's own are enough
    loaded = consilience.load(result.save(tmp_path / "wards"))
    with pytest.raises(consilience.DataError, match="not stated"):
        loaded.effects("north")
    again = loaded.effects("north", {"north": wards["north"]})
    assert np.array_equal(again.draws, own.draws)
    assert np.array_equal(loaded.predict(new, "north", wards).mean, known.mean)
    with pytest.raises(consilience.DataError, match="did you mean `north`"):
        result.effects("nort")
    with pytest.raises(KeyError, match="the effects are u, v, w"):
        own["x"]


def test_models_are_compared_row_by_row(result):
    other = consilience.sample("ill == yes ~ sex", SITES, **QUICK)
    found = consilience.compare_models(result, other)
    assert found.a.elpd_loo == result.loo().elpd_loo and found.b.elpd_loo == other.loo().elpd_loo
    assert np.isclose(found.difference.elpd_loo, found.a.elpd_loo - found.b.elpd_loo)
    assert found.difference.elpd_loo > 4 and 0 < found.difference.se < found.a.se + found.b.se
    assert "a - b" in repr(found)
    shorter = {name: {k: v[:40] for k, v in table.items()} for name, table in SITES.items()}
    with pytest.raises(consilience.DataError, match="rows"):
        consilience.compare_models(result, consilience.sample("ill == yes ~ sex", shorter, **QUICK))


def test_a_result_is_cross_validated_by_its_sites(tmp_path, result):
    found = result.loo()
    assert (found.kind, found.unit, found.n_data_points) == ("loo", "rows", 120)
    assert sum(found.counts) == 120 and found.n_samples == result.draws[..., 0].size
    assert list(found.sites) == list(SITES)
    assert np.isclose(sum(site["elpd_loo"] for site in found.sites.values()), found.elpd_loo)
    assert found.elpd == found.elpd_loo < 0 < found.p_loo == found.p < 12 and found.se > 0
    # that of no model: every response with probability 1/2
    assert found.elpd_loo > 120 * np.log(0.5)
    text = repr(found)
    assert "elpd_loo" in text and "120 rows at 2 sites" in text
    loaded = consilience.load(result.save(tmp_path / "left"))
    with pytest.raises(consilience.DataError, match="file"):
        loaded.loo()
    again = loaded.loo(SITES)
    assert (again.elpd_loo, again.se, again.counts) == (found.elpd_loo, found.se, found.counts)


def as_csv(table):
    def cell(value):
        return "NA" if value is None or value != value else str(value)

    rows = zip(*(np.asarray(column, dtype=object).tolist() for column in table.values()))
    return "\n".join([",".join(table), *(",".join(map(cell, row)) for row in rows)]) + "\n"


def of_command(command, folder, rows, *more):
    return json.loads(command("predict", folder, "--data", rows, "--json", *more))


def test_a_saved_result_predicts_by_the_command(command, tmp_path, result):
    folder = result.save(tmp_path / "run")
    for name, table in SITES.items():
        (tmp_path / "rows.csv").write_text(as_csv(table))
        told = of_command(command, folder, tmp_path / "rows.csv")
        found = result.predict(table)
        for ours, theirs in [
            ("mean", "mean"),
            ("lower", "lower"),
            ("upper", "upper"),
            ("notes", "notes"),
            ("scores", "scores"),
        ]:
            assert np.array_equal(getattr(found, ours), told[theirs]), (name, ours)
        assert (
            found.explained == "ill == yes"
            and found.scores["accuracy"] > 0.7
            and len(found.notes) == 2
        )


def test_the_probabilities_are_those_of_the_coding(result):
    """By hand: the pooled mean and deviation, the level, the indicators of what is missing."""
    dose = np.concatenate([table["dose"] for table in SITES.values()])
    mean, sd = np.nanmean(dose), np.nanstd(dose, ddof=1)
    words = sum((table["sex"] for table in SITES.values()), [])
    common = max(["f", "m"], key=words.count)
    (other,) = {"f", "m"} - {common}
    assert set(result.parameters) == {
        "intercept",
        "dose",
        "dose: missing",
        f"sex: {other}",
        "sex: missing",
    }
    table = SITES["north"]
    columns = {
        "intercept": np.ones(70),
        "dose": np.nan_to_num((table["dose"] - mean) / sd),
        "dose: missing": np.isnan(table["dose"]),
        f"sex: {other}": [word == other for word in table["sex"]],
        "sex: missing": [word is None for word in table["sex"]],
    }
    design = np.column_stack([np.asarray(columns[name], dtype=float) for name in result.parameters])
    chance = 1 / (1 + np.exp(-design @ result.draws.reshape(-1, 5).T))
    found = result.predict(table)
    assert np.allclose(found.mean, chance.mean(1), rtol=0, atol=1e-12)
    assert np.allclose(found.lower, np.quantile(chance, 0.055, axis=1), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "made", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"]
)
def test_every_kind_of_table_is_predicted_alike(result, made):
    table = {name: column for name, column in SITES["south"].items() if name != "ill"}
    found = result.predict(made(table))
    assert np.array_equal(found.mean, result.predict(table).mean) and found.scores is None


def test_the_main_job_predicts_the_hospitals(command, tmp_path):
    result = consilience.heart(iterations=400, seed=2, progress=False)
    file = DATA / "heart-disease/processed.va.data"
    rows = pd.read_csv(file, names=HEADER, na_values="?")
    found = result.predict(rows, site="va")
    told = of_command(command, result.save(tmp_path / "run"), file, "--site", "va")
    assert np.array_equal(found.mean, told["mean"]) and found.scores == told["scores"]
    assert np.array_equal(result.predict(rows.assign(site="va")).mean, found.mean)
    with pytest.raises(consilience.DataError, match="add a column `site`"):
        result.predict(rows)


def test_what_does_not_fit_is_named(result):
    for part, table in [
        ("no site has the level `x`: the levels are f, m", {"dose": [1.0, 2.0], "sex": ["f", "x"]}),
        ("row 2|line 2", {"dose": [1.0, 2.0], "sex": ["f", "x"]}),
        ("no column `dose`: did you mean `dos`", {"dos": [1.0], "sex": ["f"]}),
        ("`high` is not a finite number", {"dose": ["high"], "sex": ["f"]}),
    ]:
        with pytest.raises(consilience.DataError, match=part):
            result.predict(table)
    gaussian = consilience.sample("gaussian", {"a": {"mean": [0.0], "precision": [[1.0]]}}, **QUICK)
    with pytest.raises(consilience.Error, match="no response"):
        gaussian.predict({"x": [1.0]})


def test_plain_numbers_stay_plain_numbers(command, tmp_path):
    numbers = {name: {"x": rng.normal(size=30), "y": rng.integers(0, 2, 30)} for name in "ab"}
    result = consilience.sample("logistic", numbers, **QUICK)
    found = result.predict({"x": [0.5, -2.0]})
    chance = 1 / (1 + np.exp(-result.draws.reshape(-1, 2) @ [[1.0, 1.0], [0.5, -2.0]]))
    assert np.allclose(found.mean, chance.mean(0), rtol=0, atol=1e-12)
    (tmp_path / "new.csv").write_text("x\n0.5\n-2\n")
    assert (
        of_command(command, result.save(tmp_path / "run"), tmp_path / "new.csv")["mean"]
        == found.mean.tolist()
    )


def test_classes_have_a_column_each():
    table = {"x": rng.normal(size=90), "kind": [["ant", "bee", "cow"][k % 3] for k in range(90)]}
    result = consilience.sample("softmax", {"a": table}, classes=3, scale="max", **QUICK)
    found = result.predict(table)
    assert found.mean.shape == (90, 3) and found.classes == ["ant", "bee", "cow"]
    assert np.allclose(found.mean.sum(1), 1, rtol=0, atol=1e-12) and found.scores["rows"] == 90


def test_results_are_saved_loaded_pickled_and_copied(tmp_path, result):
    rows = {"dose": [50.0, 90.0], "sex": ["m", None]}
    others = {
        "loaded": consilience.load(result.save(tmp_path / "run")),
        "pickled": pickle.loads(pickle.dumps(result)),
        "copied": copy.copy(result),
        "copied deeply": copy.deepcopy(result),
    }
    for way, other in others.items():
        assert other == result and hash(other) == hash(result) and other is not result, way
        assert other.digest == result.digest and np.array_equal(other.draws, result.draws), way
        assert repr(other) == repr(result) and repr(other.summary()) == repr(result.summary()), way
        assert all(
            np.array_equal(values, other.sample_stats[name])
            for name, values in result.sample_stats.items()
        ), way
        assert np.array_equal(other.predict(rows).mean, result.predict(rows).mean), way
        assert not other.draws.flags.writeable, way
    others["pickled"].save(tmp_path / "again")
    files = [
        "config.toml",
        "encoding.json",
        "judged.json",
        "ledger.json",
        "log.txt",
        "run.json",
        "report.html",
    ]
    for file in files:
        assert (tmp_path / "again" / file).read_text() == (tmp_path / "run" / file).read_text(), (
            file
        )
    assert (
        result != consilience.sample(FORMULA, SITES, **QUICK | dict(seed=4))
        and result != "another thing"
    )
    with pytest.raises(consilience.Error, match="no run directory"):
        consilience.load(tmp_path)


def test_an_older_folder_is_refused(tmp_path, result):
    folder = result.save(tmp_path / "run")
    (folder / "encoding.json").unlink()
    with pytest.raises(consilience.Error, match="does not say how its columns were coded"):
        consilience.load(folder).predict(SITES["north"])
    (tmp_path / "rows.csv").write_text(as_csv(SITES["north"]))
    done = subprocess.run(
        [os.environ["CONSILIENCE"], "predict", folder, "--data", tmp_path / "rows.csv"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "does not say how its columns were coded" in done.stderr
