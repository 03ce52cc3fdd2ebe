"""Make rows of three classes, and sample the posterior of softmax regression on them.

Writes classes.csv (the rows) and classes_reference.csv (means, standard deviations and Monte Carlo
errors on pooled rows, by Hamiltonian Monte Carlo with many chains side by side and the gradient
written by hand; errors are those of the chains' own means). Needs NumPy:

    pip install numpy && python make_classes_reference.py
"""

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
CHAINS, WARM, KEPT = 64, 400, 1500
CLASSES = ["home", "ward", "intensive"]


def rows():
    """Three sites; the last has no row of the last class."""
    rng = np.random.default_rng(8)
    own = np.array([[0.6, -0.7, 0.3], [0.1, 0.4, -0.5], [-0.9, 0.8, 0.4]])
    made = []
    for site, n in zip(["north", "south", "west"], [40, 55, 18]):
        for _ in range(n):
            x, sex = round(rng.normal(), 3), str(rng.choice(["f", "m"]))
            t = own @ [1.0, x, float(sex == "m")]
            p = np.exp(t) / np.exp(t).sum()
            k = int(rng.choice(3, p=p))
            if site == "west" and k == 2:
                k = 1
            made.append((site, x, sex, CLASSES[k], k + 1))
    return made


def density(theta, design, y):
    """The log-density and its gradient: coefficients normal(0, 2.5), class by class."""
    d = design.shape[1]
    b = theta.reshape(len(theta), 3, d)
    t = np.einsum("ckd,nd->cnk", b, design)
    top = t.max(-1, keepdims=True)
    log = t - top - np.log(np.exp(t - top).sum(-1, keepdims=True))
    value = log[:, np.arange(len(y)), y].sum(1) - 0.5 * (theta**2).sum(1) / 6.25
    left = -np.exp(log)
    left[:, np.arange(len(y)), y] += 1.0
    gradient = np.einsum("cnk,nd->ckd", left, design).reshape(theta.shape) - theta / 6.25
    return value, gradient


def sample(design, y, rng):
    """Chains side by side; the metric is the covariance of the second half of a warm-up."""
    dim = 3 * design.shape[1]
    theta = 0.1 * rng.normal(size=(CHAINS, dim))
    root, step, seen, kept = np.eye(dim), 0.1, [], []
    value, gradient = density(theta, design, y)
    for k in range(2 * WARM + KEPT):
        if k == WARM:
            root = np.linalg.cholesky(np.cov(np.concatenate(seen[WARM // 2:]).T))
            seen, step = [], 0.2
        momentum = rng.normal(size=theta.shape)
        here = value - 0.5 * (momentum**2).sum(1)
        place, slope, there = theta, gradient, value
        size = step * (0.8 + 0.4 * rng.random((CHAINS, 1)))
        for _ in range(rng.integers(6, 16)):
            momentum = momentum + 0.5 * size * (slope @ root)
            place = place + size * (momentum @ root.T)
            there, slope = density(place, design, y)
            momentum = momentum + 0.5 * size * (slope @ root)
        chance = np.exp(np.minimum(there - 0.5 * (momentum**2).sum(1) - here, 0.0))
        taken = rng.random(CHAINS) < chance
        theta = np.where(taken[:, None], place, theta)
        gradient = np.where(taken[:, None], slope, gradient)
        value = np.where(taken, there, value)
        if k < 2 * WARM:
            step *= np.exp((chance.mean() - 0.85) / (1 + k % WARM) ** 0.6)
            seen.append(theta)
        else:
            kept.append(theta)
    return np.array(kept)


def main():
    made = rows()
    with open(HERE / "classes.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["site", "x", "sex", "goes", "code"])
        writer.writerows(made)
    design = np.array([[1.0, x, float(sex == "m")] for _, x, sex, _, _ in made])
    y = np.array([code - 1 for *_, code in made])
    rng = np.random.default_rng(1)
    at = 0.5 * rng.normal(size=(1, 9))
    for k in range(9):
        up, down = at.copy(), at.copy()
        up[0, k] += 1e-5
        down[0, k] -= 1e-5
        found = (density(up, design, y)[0] - density(down, design, y)[0])[0] / 2e-5
        assert abs(found - density(at, design, y)[1][0, k]) < 1e-5 * (1 + abs(found))
    drawn = sample(design, y, rng)
    with open(HERE / "classes_reference.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["parameter", "mean", "sd", "mean_error", "sd_error"])
        names = [f"{of}[{k}]" for k in CLASSES for of in ["intercept", "x", "sex: m"]]
        for k, name in enumerate(names):
            values = drawn[:, :, k]
            error = values.mean(0).std(ddof=1) / CHAINS**0.5
            about = ((values - values.mean()) ** 2).mean(0)
            spread = about.std(ddof=1) / CHAINS**0.5 / (2 * values.std())
            numbers = [values.mean(), values.std(), error, spread]
            writer.writerow([name] + [f"{number:.5f}" for number in numbers])


if __name__ == "__main__":
    main()
