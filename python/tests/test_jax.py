"""Models in JAX: their gradients and chains are those of the built-in models."""

import consilience
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

import consilience.jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

SITES = ("a", "b", "c")
rng = np.random.default_rng(11)
X = {site: rng.normal(size=(rows, 3)) for site, rows in zip(SITES, (40, 25, 31))}
Y = {
    site: (rng.random(len(x)) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.2]))).astype(float)
    for site, x in X.items()
}
QUICK = dict(iterations=120, chains=1, seed=3, prior=4.0, step=0.003, progress=False)


def log_density(weights, row):
    x, y = row
    return y * (x @ weights) - jnp.logaddexp(0.0, x @ weights)


def logistic(chunk=16):
    return consilience.jax.Model(
        log_density, np.zeros(3), {site: (X[site], Y[site]) for site in SITES}, chunk=chunk
    )


@pytest.mark.parametrize("sampler", ["lmc", "qlsd++", "vr-fald*"])
@pytest.mark.parametrize("batch", [8, 0.3])
def test_a_logistic_regression_gives_the_built_in_chain(sampler, batch):
    settings = QUICK | dict(sampler=sampler) | ({} if sampler == "lmc" else dict(batch=batch))
    built_in = consilience.sample(
        "logistic", {site: (X[site], Y[site]) for site in SITES}, intercept=False, **settings
    )
    with jax.enable_x64(True):
        precise = logistic()
    assert precise.dtype == np.float64
    assert np.abs(consilience.sample(precise, **settings).draws - built_in.draws).max() < 1e-10
    assert logistic().dtype == np.float32
    assert np.abs(consilience.sample(logistic(), **settings).draws - built_in.draws).max() < 1e-4


def test_gradients_are_those_of_the_formula():
    model = logistic()
    seen = []

    def compared(batch):
        model.gradients(batch)
        for k, (site, x, rows, out) in enumerate(batch):
            x_there, y_there = X[site][rows], Y[site][rows]
            exact = [
                (1 / (1 + np.exp(-x_there @ at)) - y_there) @ x_there
                for at in ([x] if batch.z is None else [x, batch.z[k]])
            ]
            expected = exact[0] if batch.z is None else exact[0] - exact[1]
            assert np.abs(out - expected).max() < 1e-6 * max(1.0, np.abs(x_there).sum())
            seen.append((batch.z is not None, isinstance(rows, slice)))

    own = consilience.Model(model.parameters, model.rows, compared, differences=True)
    for sampler in ["sgld", "qlsd++", "vr-fald*"]:
        consilience.sample(own, sampler=sampler, batch=0.3, **QUICK | dict(iterations=20))
    assert {(False, True), (False, False), (True, False)} <= set(seen)


def test_a_chain_mixes():
    model = logistic()
    result = consilience.sample(
        model,
        sampler="lmc",
        step="auto",
        prior=4.0,
        iterations=12_000,
        chains=2,
        seed=1,
        progress=False,
    )
    reference = consilience.sample(
        "logistic",
        {site: (X[site], Y[site]) for site in SITES},
        intercept=False,
        sampler="lmc",
        prior=4.0,
        iterations=20_000,
        seed=2,
        progress=False,
    )
    error = np.hypot(
        consilience.measures.mcse_mean(result.draws),
        consilience.measures.mcse_mean(reference.draws),
    )
    assert np.all(
        np.abs(result.draws.mean((0, 1)) - reference.draws.mean((0, 1))) < 5.5 * error
    )  # 1e-7 false alarms for three parameters
    assert np.all(consilience.measures.rhat(result.draws) < 1.1)


def test_trees_have_names_and_come_back():
    tree = {"first": {"w": np.ones((2, 3)), "b": np.zeros(2)}, "scale": 1.5}
    model = consilience.jax.Model(
        lambda p, row: -((p["first"]["w"] @ row) ** 2).sum() * p["scale"] + p["first"]["b"].sum(),
        tree,
        {"a": np.ones((4, 3))},
    )
    assert model.parameters == [
        "first.b[0]",
        "first.b[1]",
        *(f"first.w[{i},{j}]" for i in range(2) for j in range(3)),
        "scale",
    ]
    assert model.start.tolist() == [0.0, 0.0, *[1.0] * 6, 1.5]
    assert model.tree(model.start)["first"]["w"].shape == (2, 3)


def test_mistakes_are_named():
    with pytest.raises(consilience.DataError, match="'a' has arrays of unequal lengths"):
        consilience.jax.Model(log_density, np.zeros(3), {"a": (np.ones((4, 3)), np.ones(5))})
    with pytest.raises(consilience.DataError, match="no number"):
        consilience.jax.Model(lambda p, row: p * row, np.zeros(3), {"a": np.ones((4, 3))})


def test_the_chapter_on_models_runs(chapter):
    shown = chapter("jax")
    assert shown["result"].draws.shape[2] == 4 and shown["result"].draws[:, :, 1].mean() > 0.3
