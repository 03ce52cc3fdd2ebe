"""A model of one's own gives the chains of the same model built in, by one call an iteration."""

import os
import signal
import threading

import consilience
import numpy as np
import pytest

SITES = ("a", "b", "c")
MEANS = np.array([[1.0, -2.0], [0.3, 0.7], [2.2, -1.0]])
# Powers of two: products are exact, whatever their order.
PRECISIONS = np.array([[2.0, 0.5], [1.0, 4.0], [0.25, 1.0]])
GAUSSIAN = {
    site: {"mean": mean, "precision": np.diag(p)} for site, mean, p in zip(SITES, MEANS, PRECISIONS)
}
QUICK = dict(iterations=300, chains=2, seed=3, prior=4.0, progress=False)
# Without a survey, so that calls of the model are those of the chains.
PLAIN = QUICK | dict(precondition=False, start="zero")

rng = np.random.default_rng(11)
X = {site: rng.normal(size=(rows, 3)) for site, rows in zip(SITES, (40, 25, 31))}
Y = {
    site: (rng.random(len(x)) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.2]))).astype(float)
    for site, x in X.items()
}


def gaussian(batch):
    np.subtract(batch.x, MEANS[batch.clients] if batch.z is None else batch.z, out=batch.out)
    batch.out *= PRECISIONS[batch.clients]


def logistic(batch):
    for site, x, rows, out in batch:
        features = X[site][rows]
        out += (1 / (1 + np.exp(-features @ x)) - Y[site][rows]) @ features


def gaussian_model(function=gaussian, **more):
    return consilience.Model(2, dict.fromkeys(SITES, 1), function, **more)


def logistic_model(**more):
    return consilience.Model(
        ["x1", "x2", "x3"], {site: len(x) for site, x in X.items()}, logistic, **more
    )


def logistic_built_in(**settings):
    return consilience.sample(
        "logistic", {site: (X[site], Y[site]) for site in SITES}, intercept=False, **settings
    )


SAMPLERS = ["lmc", "qlsd", "qlsd++", "b-elf", "fald", "vr-fald*"]


@pytest.mark.parametrize("differences", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_gaussian_gives_the_built_in_chain_bit_for_bit(sampler, differences):
    settings = QUICK | dict(sampler=sampler, step=0.02)
    own = consilience.sample(gaussian_model(differences=differences), **settings)
    assert own.digest == consilience.sample("gaussian", GAUSSIAN, **settings).digest


@pytest.mark.parametrize("batch", [8, 0.3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_logistic_regression_gives_the_built_in_chain_to_rounding(sampler, batch):
    settings = (
        QUICK
        | dict(sampler=sampler, step=0.003)
        | ({} if sampler in ("lmc", "b-elf") else dict(batch=batch))
    )
    own, built_in = consilience.sample(logistic_model(), **settings), logistic_built_in(**settings)
    assert (
        own.parameters == built_in.parameters
        and own.ledger["rows_evaluated"] == built_in.ledger["rows_evaluated"]
    )
    # Rounding moves a chain by some 1e-15 a step, and a compressor's or a float's rounding next to
    # never.
    assert np.abs(own.draws - built_in.draws).max() < 1e-10 and own.bits == built_in.bits


@pytest.mark.parametrize("batch", [8, 0.3])
@pytest.mark.parametrize("differences", [False, True])
def test_clients_that_want_different_things_are_asked_in_one_call(differences, batch):
    settings = QUICK | dict(sampler="qlsd++", step=0.003, batch=batch, refresh=7, participation=0.5)
    mixed = []

    def seen(batch):
        mixed.append(
            isinstance(batch.rows, list)
            and len({isinstance(rows, slice) for rows in batch.rows}) == 2
        )
        logistic(batch)
        if batch.z is not None:
            own, batch.x[:] = batch.out.copy(), batch.z
            batch.out[:] = 0.0
            logistic(batch)
            batch.out[:] = own - batch.out

    model = consilience.Model(
        3, {site: len(x) for site, x in X.items()}, seen, differences=differences
    )
    assert (
        np.abs(
            consilience.sample(model, **settings).draws - logistic_built_in(**settings).draws
        ).max()
        < 1e-10
    )
    assert any(mixed)  # some about all their rows, others about minibatches


def test_steps_and_coordinates_are_found_by_gradients_alone():
    for more in [{}, {"precondition": True}]:
        settings = QUICK | more | dict(step="auto", iterations=100)
        own, built_in = (
            consilience.sample(logistic_model(), **settings),
            logistic_built_in(**settings),
        )
        # By gradients alone the shape is that at the optimum; else it is one on average.
        assert own.step == pytest.approx(built_in.step, rel=0.3)
        assert own.draws.shape == built_in.draws.shape and np.isfinite(own.draws).all()


def test_one_call_an_iteration_whoever_takes_part():
    calls, seen = [], set()

    def counted(batch):
        calls.append(len(batch))
        seen.update(batch.clients.tolist())
        gaussian(batch)

    consilience.sample(gaussian_model(counted), sampler="lmc", step=0.02, **PLAIN)
    assert calls == [3] * 600
    calls.clear()
    consilience.sample(
        gaussian_model(counted), sampler="qlsd", step=0.02, participation=0.5, **PLAIN
    )
    assert len(calls) <= 600 and set(calls) == {1, 2, 3} and seen == {0, 1, 2}


def test_points_of_reference_are_in_the_same_call():
    lines = []

    def watched(batch):
        lines.append(
            (len(batch), batch.z is not None, None if batch.rows is None else batch.rows.copy())
        )
        logistic(batch)

    model = consilience.Model(3, {site: len(x) for site, x in X.items()}, watched)
    consilience.sample(
        model,
        sampler="qlsd++",
        step=0.003,
        batch=8,
        refresh=10,
        **PLAIN | dict(chains=1, iterations=40),
    )
    # A reference point every ten iterations, over all rows; else both points over the same
    # minibatch.
    assert [n for n, _, rows in lines if rows is None] == [3] * 4
    both = [rows for n, z, rows in lines if rows is not None]
    assert len(both) == 40 and all(
        rows.shape == (6, 8) and np.array_equal(rows[:3], rows[3:]) and np.all(np.diff(rows) > 0)
        for rows in both
    )
    assert not any(z for _, z, _ in lines)


def test_an_answer_may_be_returned_and_a_function_may_be_bare():
    settings = QUICK | dict(sampler="lmc", step=0.02)
    expected = consilience.sample(gaussian_model(), **settings).digest

    def returned(batch):
        return PRECISIONS[batch.clients] * (batch.x - MEANS[batch.clients])

    assert (
        consilience.sample(returned, {"a": 1, "b": [0], "c": 1}, parameters=2, **settings).digest
        == expected
    )
    assert (
        consilience.sample(gaussian_model(concurrent=True), threads=2, **settings).digest
        == expected
    )

    class Own:
        parameters = ["u", "v"]
        rows = dict.fromkeys(SITES, 1)
        gradients = staticmethod(gaussian)

    own = consilience.sample(Own(), **settings)
    assert own.digest == expected and own.parameters == ["u", "v"]


def test_chains_start_where_the_model_or_the_call_says():
    settings = QUICK | dict(step=1e-12, burn_in=0, iterations=10)
    model = gaussian_model(start=[3.0, -4.0])
    assert np.allclose(consilience.sample(model, **settings).draws, [3.0, -4.0], atol=1e-4)
    assert np.allclose(
        consilience.sample(model, start=np.array([1.0, 2.0]), **settings).draws,
        [1.0, 2.0],
        atol=1e-4,
    )
    assert np.allclose(
        consilience.sample(model, start="optimum", **settings | dict(prior=1e9)).draws,
        (PRECISIONS * MEANS).sum(0) / PRECISIONS.sum(0),
        atol=1e-4,
    )


class Hole(Exception):
    pass


def test_what_the_model_raises_comes_out_with_the_draws_until_then():
    calls = 0

    def breaking(batch):
        nonlocal calls
        calls += 1
        if calls == 201:
            try:
                {}["layer"]
            except KeyError as error:
                raise Hole("no such layer") from error
        gaussian(batch)

    settings = PLAIN | dict(sampler="lmc", step=0.02)
    with pytest.raises(Hole, match="no such layer") as raised:
        consilience.sample(gaussian_model(breaking), **settings)
    assert isinstance(raised.value.__cause__, KeyError)
    assert "chain 1 stopped after iteration 200" in raised.value.__notes__[0]
    whole, partial = consilience.sample(gaussian_model(), **settings), raised.value.result
    assert partial.interrupted and partial.draws.shape == (1, 170, 2)
    assert np.array_equal(partial.draws[0], whole.draws[0, :170])
    assert any(entry.name == "breaking" for entry in raised.traceback)


def test_what_it_raises_before_the_first_iteration_comes_out_too():
    def broken(batch):
        raise Hole("nothing works")

    with pytest.raises(Hole, match="nothing works") as raised:
        consilience.sample(gaussian_model(broken), step="auto", **QUICK)
    assert "before the first iteration" in raised.value.__notes__[0]


def test_ctrl_c_keeps_what_was_drawn():
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.warns(consilience.InterruptedWarning, match="draws a chain are kept"):
        result = consilience.sample(
            gaussian_model(), step=1e-3, iterations=500_000_000, burn_in=10, thin=10, chains=1
        )
    timer.join()
    assert result.interrupted and result.draws.shape[1] > 0


@pytest.mark.parametrize(
    "part, call",
    [
        (
            "shape \\(2,\\), where \\(3, 2\\)",
            lambda: consilience.sample(
                gaussian_model(lambda batch: np.zeros(2)), step=0.1, progress=False
            ),
        ),
        ("is no model yet", lambda: consilience.sample(gaussian)),
        ("brings its clients", lambda: consilience.sample(gaussian_model(), {"a": 3})),
        ("'b' has 0 rows", lambda: consilience.sample(gaussian, {"a": 3, "b": 0}, parameters=2)),
        ("no clients", lambda: consilience.sample(gaussian, {}, parameters=2)),
        ("no parameters", lambda: consilience.sample(gaussian, {"a": 3}, parameters=0)),
        (
            "two parameters are called 'u'",
            lambda: consilience.sample(gaussian, {"a": 3}, parameters=["u", "u"]),
        ),
        (
            "run.start has 3 numbers",
            lambda: consilience.sample(
                gaussian_model(), step=0.1, start=[1.0, 2.0, 3.0], progress=False
            ),
        ),
    ],
)
def test_mistakes_are_named(part, call):
    with pytest.raises(consilience.ConfigError, match=part):
        call()


def test_the_chapter_on_models_runs(chapter):
    shown = chapter("numpy")
    assert (
        abs(shown["result"].draws.mean() - np.concatenate(list(shown["ages"].values())).mean())
        < 1.0
    )
