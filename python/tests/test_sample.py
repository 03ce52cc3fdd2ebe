"""The package samples the chains that the command samples, from every kind of table, and gives them
to ArviZ.
"""

import hashlib
import json
import os
import signal
import threading
import tomllib

import arviz as az
import consilience
import numpy as np
import pytest

rng = np.random.default_rng(7)


def site(rows):
    x = rng.normal(size=(rows, 2))
    chance = 1 / (1 + np.exp(-(x @ [1.0, -0.5] + 0.3)))
    return {
        "dose": x[:, 0],
        "age": 60 + 10 * x[:, 1],
        "ill": (rng.random(rows) < chance).astype(float),
    }


SITES = {"north": site(60), "south": site(40)}
QUICK = dict(iterations=400, chains=2, progress=False)


def as_csv(table):
    rows = zip(*(np.asarray(column).tolist() for column in table.values()))
    return (
        "\n".join([",".join(table), *(",".join(repr(cell) for cell in row) for row in rows)]) + "\n"
    )


def answer_of(command, folder, text, tables):
    """What the command says of the same tables as files."""
    for name, table in tables.items():
        (folder / f"{name}.csv").write_text(as_csv(table))
    clients = "".join(f'[[client]]\nname = "{name}"\nfile = "{name}.csv"\n' for name in tables)
    (folder / "run.toml").write_text(text.replace("[[client]]\n", clients))
    return json.loads(command("run", "run.toml", "--json", cwd=folder))


def test_the_main_job_is_that_of_the_command(command, tmp_path):
    result = consilience.heart(iterations=1200, seed=5, progress=False)
    told = json.loads(command("--iterations", 1200, "--seed", 5, "--json", cwd=tmp_path))
    assert result.digest == told["digest"] == hashlib.sha256(result.draws.tobytes()).hexdigest()
    kept = json.loads((tmp_path / told["run_directory"] / "run.json").read_text())
    assert kept["digest"] == result.digest
    assert (
        result.parameters == told["parameters"]
        and [s["name"] for s in result.sites] == told["clients"]
    )
    assert result.bits == {"up": told["bits"]["up"], "down": told["bits"]["down"]}
    assert (
        result.ledger["up"] == told["bits"]["up_by_kind"]
        and result.ledger["down"] == told["bits"]["down_by_kind"]
    )
    summary = result.summary()
    for ours, theirs in [
        ("sd", "sd"),
        ("lower", "lower"),
        ("upper", "upper"),
        ("rhat", "rhat"),
        ("ess_bulk", "ess_bulk"),
        ("mcse_mean", "mcse_mean"),
    ]:
        assert np.array_equal(summary[ours], told[theirs]), ours
    assert result.config.startswith("seed = 5")


def test_the_same_rows_from_files_and_from_memory(command, tmp_path):
    text = (
        'seed = 3\n[target]\nmodel = "logistic"\n[[client]]\n[sampler]\nname = "NAME"\n[run]\n'
        "chains = 2\niterations = 400\n"
    )
    # whichever is cheapest where none is named
    for name, settings in [("lmc", {"sampler": "lmc"}), ("auto", {})]:
        told = answer_of(command, tmp_path, text.replace("NAME", name), SITES)
        assert told["digest"] == consilience.sample(
            "logistic", SITES, seed=3, **settings, **QUICK
        ).digest


def test_columns_are_coded_by_what_is_stated():
    """Rows that NumPy codes are those that a formula codes by stated numbers."""
    settings = dict(sampler="lmc", step=0.002, start="zero", prior=4.0, seed=5, **QUICK)
    coding = {
        "dose": {"centre": 0.25, "scale": 0.5},
        "age": {"centre": 60, "scale": 10},
        "sex": {"levels": ["m", "f"]},
    }
    words = {
        name: table | {"sex": np.where(np.arange(len(table["ill"])) % 3 == 0, "f", "m")}
        for name, table in SITES.items()
    }
    plain = {
        name: {
            "dose": (table["dose"] - 0.25) / 0.5,
            "age": (table["age"] - 60) / 10,
            "sex: f": (table["sex"] == "f").astype(float),
            "ill": table["ill"],
        }
        for name, table in words.items()
    }
    formula = "ill == 1 ~ dose + age + sex"
    stated = consilience.sample(formula, words, coding=coding, **settings)
    assert stated.parameters == ["intercept", "dose", "age", "sex: f"]
    assert stated.digest == consilience.sample("logistic", plain, **settings).digest
    budget = {"privacy": {"epsilon": 3.0, "delta": 1e-6, "row_norm": 3.0}}
    settings |= {"step": 1e-5}
    with pytest.warns(consilience.ConsilienceWarning, match="keeps nothing from anybody"):
        private = consilience.sample(formula, words, config=budget, coding=coding, **settings)
        numbers = consilience.sample("logistic", plain, config=budget, **settings)
    assert private.digest == numbers.digest
    with pytest.raises(consilience.ConfigError, match="target.coding"):
        consilience.sample(formula, words, config=budget, **settings)
    with pytest.raises(consilience.DataError, match="no level"):
        two = coding | {"sex": {"levels": ["m", "x"]}}
        consilience.sample(formula, words, coding=two, **settings)


def test_a_formula_from_files_and_from_memory(command, tmp_path):
    gaps = {
        name: table | {"age": np.where(np.arange(len(table["age"])) % 7 == 0, np.nan, table["age"])}
        for name, table in SITES.items()
    }
    words = {
        name: table | {"sex": np.where(np.arange(len(table["ill"])) % 3 == 0, "f", "m")}
        for name, table in gaps.items()
    }
    formula = "ill == 1 ~ dose + age + sex + site"
    text = (
        f'seed = 3\n[target]\nformula = "{formula}"\n[[client]]\n[sampler]\nname = "qlsd"\n[run]\n'
        "chains = 2\niterations = 400\n"
    )
    files = {
        name: {
            key: ["NA" if cell != cell else cell for cell in np.asarray(column).tolist()]
            for key, column in table.items()
        }
        for name, table in words.items()
    }
    for name, table in files.items():
        rows = zip(*table.values())
        (tmp_path / f"{name}.csv").write_text(
            "\n".join([",".join(table), *(",".join(str(c) for c in row) for row in rows)]) + "\n"
        )
    clients = "".join(f'[[client]]\nname = "{name}"\nfile = "{name}.csv"\n' for name in words)
    (tmp_path / "run.toml").write_text(text.replace("[[client]]\n", clients))
    told = json.loads(command("run", "run.toml", "--json", cwd=tmp_path))
    result = consilience.sample(formula, words, sampler="qlsd", seed=3, **QUICK)
    assert result.parameters == told["parameters"] and result.parameters[1:3] == ["dose", "age"]
    assert result.digest == told["digest"]


def tables_of(kind):
    if kind == "structured":
        return {
            name: np.rec.fromarrays(list(t.values()), names=list(t)) for name, t in SITES.items()
        }
    if kind == "pair":
        return {
            name: (np.column_stack([t["dose"], t["age"]]), t["ill"]) for name, t in SITES.items()
        }
    if kind == "strided":
        return {
            name: {key: np.column_stack([column, column])[:, 0] for key, column in t.items()}
            for name, t in SITES.items()
        }
    library = pytest.importorskip({"arrow": "pyarrow", "stream": "pyarrow"}.get(kind, kind))
    if kind == "pandas":
        return {name: library.DataFrame(t) for name, t in SITES.items()}
    if kind == "polars":
        return {name: library.DataFrame(t) for name, t in SITES.items()}
    if kind == "arrow":
        return {name: library.table(t) for name, t in SITES.items()}
    return {name: Stream(library.table(t)) for name, t in SITES.items()}


class Stream:
    """A table of which nothing but Arrow's interface is known."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "kind", ["structured", "pair", "strided", "pandas", "polars", "arrow", "stream"]
)
def test_every_kind_of_table_gives_the_same_chains(kind):
    plain = consilience.sample("logistic", SITES, seed=3, **QUICK)
    assert consilience.sample("logistic", tables_of(kind), seed=3, **QUICK).digest == plain.digest


def test_words_of_pandas_and_polars_with_gaps():
    plain = [
        {"y": np.array([0.5, 1.0, 2.0, 0.1]), "kind": ["a", None, "b", "a"]},
        {"y": np.array([1.5, 0.3, 2.2]), "kind": ["b", "a", "a"]},
    ]
    expected = consilience.sample("y ~ kind", plain, noise_variance=1.0, seed=3, step=0.05, **QUICK)
    assert "kind: b" in expected.parameters
    for name in ["pandas", "polars"]:
        library = pytest.importorskip(name)
        found = consilience.sample(
            "y ~ kind",
            [library.DataFrame(table) for table in plain],
            noise_variance=1.0,
            seed=3,
            step=0.05,
            **QUICK,
        )
        assert found.digest == expected.digest, name


def test_gaussian_clients_and_their_exact_mean():
    clients = {
        "a": {"mean": np.zeros(2), "precision": np.diag([2.0, 1.0])},
        "b": {"mean": [3.0, 1.0], "covariance": np.eye(2)},
    }
    result = consilience.sample(
        "gaussian", clients, step=0.1, seed=3, iterations=6000, progress=False
    )
    mean = result.draws.mean((0, 1))
    error = consilience.measures.mcse_mean(result.draws)
    assert np.all(np.abs(mean - [1.0, 0.5]) < 5 * error)  # 1e-6 false alarms


def test_a_config_as_dictionary_text_and_file(tmp_path):
    text = consilience._consilience.HEART.replace("40_000", "600").replace("2_000", "60")
    (tmp_path / "run.toml").write_text(text)
    digests = {
        consilience.sample(config=given, progress=False).digest
        for given in [text, tomllib.loads(text), tmp_path / "run.toml", str(tmp_path / "run.toml")]
    }
    assert len(digests) == 1
    changed = consilience.sample(config=tmp_path / "run.toml", seed=9, chains=1, progress=False)
    assert changed.draws.shape[0] == 1 and changed.seed == 9 and changed.digest not in digests


def test_arviz_says_what_we_say(tmp_path):
    result = consilience.heart(iterations=1600, progress=False)
    assert (
        result.draws.shape[1] % 2 == 0
    )  # of an odd number the summary of ArviZ 0.x takes another median than its R-hat
    ours = result.summary()
    options = {"round_to": "none"}
    for given in [result.posterior, result.to_arviz()]:
        table = az.summary(given, **options)
        assert list(table.index) == [name.replace("/", "_") for name in result.parameters]
        assert np.allclose(table["mean"], ours["mean"], rtol=0, atol=1e-12)
        assert np.allclose(table["r_hat"], ours["rhat"], rtol=0, atol=1e-9)
    stats = result.to_arviz()["sample_stats"]
    assert (
        stats["lp"].dims == ("chain", "draw") and stats["bits_up"].shape == result.draws.shape[:2]
    )


def test_draws_are_handed_over_and_cannot_be_changed():
    result = consilience.sample("logistic", SITES, **QUICK)
    assert (
        result.draws is result.draws
        and result.draws.flags.c_contiguous
        and not result.draws.flags.writeable
    )
    with pytest.raises(ValueError):
        result.draws[0, 0, 0] = 1.0


def test_a_saved_run_is_one_of_the_command(command, tmp_path):
    result = consilience.sample("logistic", SITES, **QUICK)
    folder = result.save(tmp_path / "kept")
    told = json.loads(command("summary", folder, "--json"))
    assert told["digest"] == result.digest
    said = [(warning["code"], warning["message"]) for warning in told["warnings"]]
    assert said == [(warning.code, warning.message) for warning in result.warnings]
    page = result.report(tmp_path / "page.html").read_text()
    assert (
        page.startswith("<!DOCTYPE html>")
        and "dose" in page
        and (folder / "report.html").read_text() == page
    )
    with pytest.raises(consilience.Error, match="nothing was overwritten"):
        result.save(folder)


@pytest.mark.parametrize(
    "error, part, arguments",
    [
        (
            consilience.ConfigError,
            "did you mean",
            dict(model="logistic", clients=SITES, sampler="lmcc"),
        ),
        (
            consilience.ArgumentError,
            "did you mean `compress`",
            dict(model="logistic", clients=SITES, compressor="qsgd(4)"),
        ),
        (consilience.ConfigError, "nothing to sample", dict()),
        (
            consilience.ConfigError,
            "the config, line 3: target.model",
            dict(config="[sampler]\nname = 3\n[target]\n"),
        ),
        (consilience.DataError, "is no table", dict(model="logistic", clients={"a": 3})),
        (
            consilience.DataError,
            "has 1 rows where the first has 2",
            dict(model="logistic", clients={"a": {"x": [1.0, 2.0], "y": [1.0]}}),
        ),
        (
            consilience.DataError,
            "has words",
            dict(model="logistic", clients={"a": {"x": ["u", "v"], "y": [1.0, 0.0]}}),
        ),
        (
            consilience.DataError,
            "did you mean `dose`",
            dict(model="ill == 1 ~ doze", clients=SITES),
        ),
        (
            consilience.SamplingError,
            "diverged at iteration",
            dict(model="linear", clients=SITES, noise_variance=1.0, step=1e3),
        ),
    ],
)
def test_mistakes_are_named(error, part, arguments):
    with pytest.raises(error, match=part) as raised:
        consilience.sample(**arguments, progress=False)
    assert isinstance(raised.value, consilience.Error)


def interrupt(seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_ctrl_c_keeps_what_was_drawn():
    timer = interrupt(0.3)
    with pytest.warns(consilience.InterruptedWarning, match="draws a chain are kept") as raised:
        result = consilience.sample(
            "logistic",
            SITES,
            step=1e-3,
            iterations=500_000_000,
            burn_in=10,
            thin=1000,
            chains=2,
            threads=2,
        )
    timer.join()
    assert sum("stopped" in str(warning.message) for warning in raised) == 1
    assert (
        result.interrupted
        and result.draws.shape[1] > 0
        and result.warnings[0].code == "interrupted"
    )
    assert [warning.message.code for warning in raised].count("interrupted") == 1


def test_ctrl_c_before_the_first_draw_is_raised():
    timer = interrupt(0.3)
    with pytest.raises(KeyboardInterrupt):
        consilience.sample(
            "logistic", SITES, step=1e-3, iterations=500_000_000, burn_in=400_000_000, chains=1
        )
    timer.join()


def test_the_interpreter_is_free_while_chains_run():
    seen = []
    stop = threading.Event()

    def count():
        while not stop.wait(0.005):
            seen.append(1)

    thread = threading.Thread(target=count)
    thread.start()
    consilience.sample(
        "logistic",
        SITES,
        step=1e-3,
        iterations=150_000,
        thin=100,
        chains=2,
        threads=1,
        progress=False,
    )
    stop.set()
    thread.join()
    assert len(seen) > 5
