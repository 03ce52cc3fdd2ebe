"""Record draws, and what ArviZ, numpy and scipy say of them, for tests/measure_reference.rs.

    python3.11 -m venv venv && venv/bin/pip install arviz==0.23.4 scipy==1.17.1
    venv/bin/python crates/core/tests/data/make_arviz_reference.py

writes, beside itself,
    draws.csv   case,chain,draws separated by spaces
    arviz.csv   case,measure,argument,value
    scipy.csv   function,arguments separated by spaces,...,value
Numbers are written so that reading them back gives the same bits.
"""

import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import arviz as az
import numpy as np
from scipy import linalg, optimize, stats

HERE = Path(__file__).parent


def short(draws):
    """The draws to nine digits: exact when read back, and half as long."""
    return np.vectorize(lambda x: float(f"{x:.9g}"))(draws)


def ar1(rng, chains, draws, rho):
    x = np.empty((chains, draws))
    x[:, 0] = rng.normal(size=chains)
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=chains)
    return x


def cases():
    rng = np.random.default_rng(20240601)
    yield "quick", 3.0 + ar1(rng, 4, 200, 0.3)
    yield "slow", ar1(rng, 4, 600, 0.98)  # needs hundreds of lags
    yield "single", ar1(rng, 1, 300, 0.7)
    yield "cauchy", rng.standard_cauchy(size=(4, 150))
    yield "constant", np.full((3, 20), 2.5)
    yield "antithetic", ar1(rng, 2, 250, -0.6)
    yield "shifted", ar1(rng, 4, 100, 0.2) + np.array([[0.0], [0.0], [0.0], [1.5]])
    yield "wide", ar1(rng, 4, 100, 0.2) * np.array([[1.0], [1.0], [1.0], [4.0]])
    yield "odd", ar1(rng, 3, 101, 0.5)
    yield "odd_single", 1e4 + ar1(rng, 1, 51, 0.4)
    yield "tied", np.round(2 * ar1(rng, 4, 120, 0.6)) / 2
    yield (
        "sticky",
        np.repeat(rng.normal(size=(2, 67)), 3, axis=1),
    )  # a Metropolis chain that stays put
    yield "trend", ar1(rng, 2, 80, 0.1) + np.linspace(0, 3, 80)
    for draws in (4, 5, 6, 9, 10, 11):
        yield f"tiny{draws}", rng.normal(size=(2, draws))


def measures(x):
    for name, value in {
        "rhat": az.rhat(x, method="rank"),
        "ess_bulk": az.ess(x, method="bulk"),
        "ess_tail": az.ess(x, method="tail"),
        "ess_mean": az.ess(x, method="mean"),
        "mcse_mean": az.mcse(x, method="mean"),
        "mcse_sd": az.mcse(x, method="sd"),
        "mean": x.mean(),
        "sd": x.std(ddof=1),
    }.items():
        yield name, 0.0, value
    for p in (0.05, 0.1, 0.3, 0.5, 0.9):
        yield "ess_quantile", p, az.ess(x, method="quantile", prob=p)
        yield "mcse_quantile", p, az.mcse(x, method="quantile", prob=p)
        yield "quantile", p, np.quantile(x, p)
    for mass in (0.5, 0.94):
        low, high = az.hdi(x.ravel(), hdi_prob=mass)
        yield "hdi_lower", mass, low
        yield "hdi_upper", mass, high


def numbers(values):
    return " ".join(repr(float(v)) for v in np.ravel(values))


def scipy_rows():
    rng = np.random.default_rng(7)
    for p in [
        1e-300,
        1e-30,
        1e-12,
        1e-5,
        0.01,
        0.07,
        0.074,
        0.076,
        0.2,
        0.4999,
        0.51,
        0.7,
        0.924,
        0.926,
        0.99,
        1 - 1e-9,
    ]:
        yield "normal_quantile", [p], stats.norm.ppf(p)
    for n, d in [(1, 3), (40, 1), (60, 2), (80, 5)]:
        x, y = short(rng.normal(size=(n, d))), short(rng.normal(size=(n, d)) * 1.5 + 0.3)
        cost = ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)
        rows, columns = optimize.linear_sum_assignment(cost)
        yield "w2_between_samples", [d], x, y, np.sqrt(cost[rows, columns].mean())
    for d in (1, 2, 6):
        m, k = rng.normal(size=d), rng.normal(size=d)
        a, b = (np.cov(rng.normal(size=(d, d + 3))).reshape(d, d) for _ in range(2))
        a, b = (a + a.T) / 2, (b + b.T) / 2
        root = linalg.sqrtm(a)
        cross = linalg.sqrtm(root @ b @ root).real
        yield "gaussian_w2", m, a, k, b, np.sqrt(((m - k) ** 2).sum() + np.trace(a + b - 2 * cross))
        inverse = np.linalg.inv(b)
        log_ratio = np.linalg.slogdet(b)[1] - np.linalg.slogdet(a)[1]
        yield (
            "gaussian_kl",
            m,
            a,
            k,
            b,
            0.5 * (np.trace(inverse @ a) + (m - k) @ inverse @ (m - k) - d + log_ratio),
        )
    draws = short(rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3)))
    yield "covariance", [3], draws, np.cov(draws.T)
    negatives, positives = rng.integers(0, 12, size=40), rng.integers(3, 15, size=25)
    yield (
        "auc",
        negatives,
        positives,
        stats.mannwhitneyu(positives, negatives).statistic / (40 * 25),
    )


def main():
    with open(HERE / "draws.csv", "w") as draws, open(HERE / "arviz.csv", "w") as arviz:
        for case, x in cases():
            x = short(x)
            for chain, values in enumerate(x):
                draws.write(f"{case},{chain},{numbers(values)}\n")
            for name, argument, value in measures(x):
                arviz.write(f"{case},{name},{argument!r},{float(value)!r}\n")
    with open(HERE / "scipy.csv", "w") as scipy:
        for name, *fields in scipy_rows():
            scipy.write(",".join([name, *map(numbers, fields)]) + "\n")


if __name__ == "__main__":
    main()
