"""Mistakes get a message with the site, the column and the right word; what an answer lacks is
warned of.
"""

import copy
import datetime
import pickle
import re
import warnings

import consilience
import numpy as np
import pytest

rng = np.random.default_rng(5)


def site(rows):
    age, dose = rng.normal(60, 10, rows), rng.normal(size=rows)
    ill = (rng.random(rows) < 1 / (1 + np.exp(-dose))).astype(float)
    return {"age": age, "dose": dose, "ill": ill}


SITES = {"basel": site(60), "zurich": site(40)}
FORMULA = "ill == 1 ~ age + dose"
QUICK = dict(sampler="lmc", step=0.01, iterations=300, chains=2, seed=3, progress=False)


def dates(kind, rows):
    """A column of dates as each library has it."""
    days = np.datetime64("2024-02-27") + np.arange(rows)
    if kind == "datetime64":
        return days
    if kind == "objects":
        return [day.item() for day in days[:-1]] + [None]
    if kind == "times":
        moments = [datetime.datetime(2024, 1, 1, 12, k % 60) for k in range(rows)]
        return np.array(moments, dtype=object)
    if kind == "durations":
        return days - days[0]
    library = pytest.importorskip(kind.split()[0])
    if kind == "pandas":
        return library.Series(library.to_datetime(days))
    if kind == "pandas with a zone":
        return library.Series(library.date_range("2024-01-01", periods=rows, tz="Europe/Zurich"))
    if kind == "polars":
        return library.Series(days)
    if kind == "pyarrow":
        return library.chunked_array([library.array(days, library.date32())])
    return library.chunked_array([library.array(days.astype("datetime64[us]"))])


KINDS = ["datetime64", "objects", "times", "durations"]
KINDS += ["pandas", "pandas with a zone", "polars", "pyarrow", "pyarrow moments"]


def dated(kind):
    return {name: table | {"seen": dates(kind, len(table["ill"]))} for name, table in SITES.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_dates_that_a_formula_does_not_use_are_left_alone(kind):
    plain = consilience.sample(FORMULA, SITES, **QUICK)
    assert consilience.sample(FORMULA, dated(kind), **QUICK).digest == plain.digest


@pytest.mark.parametrize("kind", KINDS)
def test_dates_that_are_used_are_refused_with_what_to_do(kind):
    for formula in [f"{FORMULA} + seen", "ill == 1 ~ ."]:
        with pytest.raises(consilience.DataError, match="since one date") as raised:
            consilience.sample(formula, dated(kind), **QUICK)
        assert "client 'basel', column `seen`: dates" in str(raised.value)


@pytest.mark.parametrize(
    "library, adopt", [("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")]
)
def test_a_table_with_dates_that_are_not_used(library, adopt):
    make = getattr(pytest.importorskip(library), adopt)
    plain = consilience.sample(FORMULA, SITES, **QUICK)
    tables = {name: make(table) for name, table in dated("datetime64").items()}
    assert consilience.sample(FORMULA, tables, **QUICK).digest == plain.digest


def test_dates_can_be_taken_away_from_all_columns():
    plain = consilience.sample("ill == 1 ~ .", SITES, **QUICK)
    found = consilience.sample("ill == 1 ~ . - seen", dated("datetime64"), **QUICK)
    assert found.digest == plain.digest and found.parameters == plain.parameters


def test_a_column_that_is_not_used_is_never_looked_at():
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"{name} of a column that is not used was looked at")

    tables = {name: table | {"notes": Untouchable()} for name, table in SITES.items()}
    assert consilience.sample(FORMULA, tables, **QUICK).parameters == ["intercept", "age", "dose"]


def changed(name, **columns):
    """The sites with other columns at one of them; ``None`` takes one away."""
    table = {key: value for key, value in (SITES[name] | columns).items() if value is not None}
    return SITES | {name: table}


class Frame:
    """A lone table of a library, made where the library is there."""

    def __init__(self, library, adopt):
        self.library, self.adopt = library, adopt

    def make(self):
        return getattr(pytest.importorskip(self.library), self.adopt)(SITES["basel"])


WORDS = ["sixty"] * 40
MIXED = ["unknown", *np.arange(59.0).tolist()]
LONE = "one table .*where one for each client is expected\n.*table.groupby"


@pytest.mark.parametrize(
    "error, parts, arguments",
    [
        (consilience.DataError, [LONE], dict(clients=Frame("pandas", "DataFrame"))),
        (consilience.DataError, [LONE], dict(clients=Frame("polars", "DataFrame"))),
        (consilience.DataError, [LONE], dict(clients=Frame("pyarrow", "table"))),
        (consilience.DataError, [LONE], dict(clients=SITES["basel"])),
        (
            consilience.DataError,
            [LONE],
            dict(model="logistic", clients=(np.ones((9, 2)), np.ones(9))),
        ),
        (consilience.DataError, [LONE], dict(model="logistic", clients=np.ones((9, 2)))),
        (
            consilience.DataError,
            [
                'site "zurich" has no column `dose`',
                'site "basel" has',
                "did you mean `doze`",
                "numpy.nan",
            ],
            dict(clients=changed("zurich", dose=None, doze=SITES["zurich"]["dose"])),
        ),
        (
            consilience.DataError,
            [
                "column `age`: client 'zurich' has words, such as 'sixty'",
                "client 'basel' has numbers",
                r"astype\(str\)",
            ],
            dict(clients=changed("zurich", age=WORDS)),
        ),
        (
            consilience.DataError,
            [
                "client 'basel', column `age`: it has words, such as 'unknown'",
                "0.0 in row 2",
                "NaN where",
            ],
            dict(clients=changed("basel", age=MIXED)),
        ),
        (consilience.DataError, ["did you mean `dose`"], dict(model="ill == 1 ~ doze")),
        (consilience.DataError, ["is not `response ~ terms`"], dict(model="ill ~ age ~ dose")),
        (TypeError, ["`iteration` is no setting\n  did you mean `iterations`?"], dict(iteration=9)),
        (consilience.ArgumentError, ["did you mean `batch`"], dict(batch_size=9)),
        (consilience.ArgumentError, ["did you mean `burn_in`"], dict(warmup=9)),
        (consilience.ArgumentError, ["did you mean `precondition`"], dict(preconditon=True)),
        (
            consilience.ConfigError,
            ["`frobnicate` is no setting", "temperature"],
            dict(frobnicate=1),
        ),
        (
            consilience.ConfigError,
            [
                'sampler.batch: a batch of 50 rows is larger than client "zurich", which has 40',
                "batch = 40",
                "0.2",
            ],
            dict(sampler="sgld", batch=50),
        ),
    ],
)
def test_mistakes_are_named(error, parts, arguments):
    arguments = dict(model=FORMULA, clients=SITES) | QUICK | arguments
    if isinstance(arguments["clients"], Frame):
        arguments["clients"] = arguments["clients"].make()
    with pytest.raises(error, match=parts[0]) as raised:
        consilience.sample(**arguments)
    assert isinstance(raised.value, consilience.Error)
    for part in parts[1:]:
        assert re.search(part, str(raised.value)), str(raised.value)


def test_keywords_are_checked_wherever_there_are_some():
    for call in [consilience.heart, lambda **more: consilience.exact("gaussian", {}, **more)]:
        with pytest.raises(consilience.ArgumentError, match="did you mean `chains`"):
            call(chain=2)
    with pytest.raises(consilience.ArgumentError, match="did you mean `chains`"):
        consilience.network.serve({"sampler": {"name": "lmc"}}, chain=2)


def test_every_setting_of_a_config_is_a_keyword():
    from consilience._sample import _places

    places = _places()
    assert places["iterations"] == "run" and places["prior"] == "target" and places["seed"] == ""
    assert places["lp"] == "output" and places["test"] == "data" and places["batch"] == "sampler"
    assert not {"sampler", "run", "client"} & set(places)


def test_words_may_be_missing_at_a_site():
    tables = {
        "basel": SITES["basel"] | {"ward": [None] * 60},
        "zurich": SITES["zurich"] | {"ward": ["east", "west", float("nan"), "west"] * 10},
    }
    found = consilience.sample(f"{FORMULA} + ward", tables, **QUICK)
    assert [name for name in found.parameters if name.startswith("ward: ")] == [
        "ward: east",
        "ward: missing",
    ]


def test_a_batch_as_large_as_a_site_is_none_too_large():
    assert consilience.sample(FORMULA, SITES, **QUICK | dict(sampler="sgld", batch=40)).draws.size


DATA = {"basel": np.array([1.0, 2.0, 3.0]), "zurich": np.array([5.0, 5.0])}


def gradients(batch):
    for name, x, rows, out in batch:
        out += (x - DATA[name][rows, None]).sum(0)


def own(function, sampler="lmc", **more):
    model = consilience.Model(
        ["mean", "other"], {name: len(rows) for name, rows in DATA.items()}, function
    )
    settings = dict(sampler=sampler, step=0.1, prior=4.0, iterations=200, chains=2, progress=False)
    return consilience.sample(model, **settings | more)


@pytest.mark.parametrize("sampler", ["lmc", "qlsd", "qlsd++", "vr-fald*"])
@pytest.mark.parametrize("since", [0, 30])
def test_a_gradient_that_is_no_number_is_named(sampler, since):
    calls = 0

    def broken(batch):
        nonlocal calls
        calls += 1
        gradients(batch)
        if calls > since:
            batch.out[batch.clients == 1, 1] = np.nan

    with pytest.raises(consilience.SamplingError, match="gradient is NaN") as raised:
        own(broken, sampler)
    said = str(raised.value)
    assert 'client "zurich", parameter "other", at mean = ' in said and "0/0" in said


@pytest.mark.parametrize(
    "more", [dict(step="auto"), dict(step="auto", precondition=True), dict(start="optimum")]
)
def test_a_gradient_that_is_no_number_before_the_first_iteration(more):
    def broken(batch):
        batch.out[:] = np.nan

    with pytest.raises(
        consilience.SamplingError, match='gradient is NaN: client "basel", parameter "mean"'
    ):
        own(broken, **more)


def test_a_chain_that_runs_away_is_still_said_to_diverge():
    with pytest.raises(consilience.SamplingError, match="diverged at iteration"):
        own(gradients, step=1e3, iterations=2000)


def test_a_batch_larger_than_a_site_of_a_model_of_ones_own():
    with pytest.raises(consilience.ConfigError, match='larger than client "zurich", which has 2'):
        own(gradients, "sgld", batch=3)


def few():
    """A run that gives reason for warnings."""
    return consilience.sample(FORMULA, SITES, **QUICK | dict(chains=1, iterations=40))


def test_what_an_answer_lacks_is_warned_of_once():
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = few()
    assert result.warnings and len(raised) == len(result.warnings)
    for warning, told in zip(raised, result.warnings):
        assert warning.category is consilience.ConsilienceWarning
        assert str(warning.message) == told and warning.filename == __file__
        assert warning.message.code == told.code != ""
    told = next(told for told in result.warnings if told.code == "one-chain")
    assert told.severity == "warning" and "Run at least 4" in told.remedy
    numbers = [number for told in result.warnings for number in told.numbers.values()]
    assert numbers and all(isinstance(number, float) for number in numbers)
    with pytest.raises(consilience.ConsilienceWarning), warnings.catch_warnings():
        warnings.simplefilter("error", consilience.ConsilienceWarning)
        few()


def test_a_good_answer_is_given_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sites = {
            "a": {"mean": [0.0], "precision": [[1.0]]},
            "b": {"mean": [3.0], "precision": [[2.0]]},
        }
        result = consilience.sample(
            "gaussian", sites, step=0.3, seed=1, iterations=8000, progress=False
        )
    assert result.warnings == [] and "WARNING" not in repr(result.summary())


def test_warnings_stand_below_the_summary():
    with pytest.warns(consilience.ConsilienceWarning):
        result = few()
    summary = result.summary()
    assert summary.warnings == result.warnings
    shown = repr(summary).splitlines()
    below = shown[1 + len(result.parameters) :]
    assert "\n".join(below) == "\n".join(f"WARNING: {told}" for told in result.warnings)


def test_a_warning_keeps_its_parts():
    told = consilience.Diagnostic(
        "the chains disagree", "run more iterations", "chains-disagree", "error", {"rhat": 1.2}
    )
    assert told == "the chains disagree\n  run more iterations"
    for copied in [pickle.loads(pickle.dumps(told)), copy.deepcopy(told)]:
        assert copied == told
        assert vars(copied) == vars(told)
