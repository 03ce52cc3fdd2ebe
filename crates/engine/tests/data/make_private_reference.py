"""Write private_reference.csv: posteriors of logistic regression on pooled real rows, by NumPy.

Rows are coded by the numbers that `crates/engine/tests/private_data.rs` states, an intercept is put
first, and rows longer than the bound are shortened, as a private run does. The posterior, with a
normal(0, 2) prior on every coefficient, is sampled by independent Metropolis: proposals from a
Student-t law with 8 degrees of freedom around the mode, with the curvature there; a chain of 40,000
of them, of which more than 80% are accepted. One line a parameter: data, parameter, mean, sd, the
mean's error by batches. Nothing of Consilience is used.
"""

import csv
import lzma
import pathlib

import numpy as np

DATA = pathlib.Path(__file__).parents[4] / "data"
VARIANCE = 4.0
PROPOSALS = 40_000
T = 8


def visits():
    with lzma.open(DATA / "randhie" / "randhie.csv.xz", "rt") as file:
        rows = list(csv.DictReader(file))
    column = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    scaled = {
        "lncoins": (2.5, 2.0),
        "lpi": (4.5, 2.5),
        "fmde": (4.0, 3.5),
        "disea": (11.0, 7.0),
    }
    cells = [np.ones(len(rows))]
    names = ["intercept"]
    for name, (centre, scale) in scaled.items():
        cells.append((column[name] - centre) / scale)
        names.append(name)
    cells.append(column["idp"])
    names.append("idp")
    return names, np.column_stack(cells), (column["mdvis"] > 0).astype(float), 3.0


def voters():
    with open(DATA / "anes96" / "anes96.csv") as file:
        rows = list(csv.DictReader(file))
    column = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    scaled = {"selfLR": (4.0, 1.5), "PID": (3.0, 2.0), "age": (45.0, 16.0)}
    cells = [np.ones(len(rows))]
    for name, (centre, scale) in scaled.items():
        cells.append((column[name] - centre) / scale)
    return ["intercept", *scaled], np.column_stack(cells), column["vote"], 2.5


def shortened(cells, most):
    length = np.sqrt((cells**2).sum(axis=1))
    return cells * np.minimum(1.0, most / length)[:, None]


def log_density(cells, y, at):
    t = cells @ at.T
    return y @ t - np.logaddexp(0.0, t).sum(axis=0) - 0.5 * (at**2).sum(axis=1) / VARIANCE


def mode(cells, y):
    at = np.zeros(cells.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-cells @ at))
        gradient = cells.T @ (y - p) - at / VARIANCE
        hessian = (cells * (p * (1 - p))[:, None]).T @ cells + np.eye(len(at)) / VARIANCE
        step = np.linalg.solve(hessian, gradient)
        at = at + step
        if np.abs(step).max() < 1e-12:
            break
    return at, np.linalg.inv(hessian)


def sample(cells, y, seed):
    rng = np.random.default_rng(seed)
    centre, covariance = mode(cells, y)
    root = np.linalg.cholesky(covariance)
    d = len(centre)
    z = rng.normal(size=(PROPOSALS, d)) / np.sqrt(rng.chisquare(T, size=(PROPOSALS, 1)) / T)
    points = centre + z @ root.T
    proposal = -0.5 * (T + d) * np.log1p((z**2).sum(axis=1) / T)
    parts = [log_density(cells, y, part) for part in np.array_split(points, 80)]
    weight = np.concatenate(parts) - proposal
    draws, here, accepted = np.empty_like(points), 0, 0
    coins = np.log(rng.uniform(size=PROPOSALS))
    for k in range(PROPOSALS):
        if coins[k] < weight[k] - weight[here]:
            here, accepted = k, accepted + 1
        draws[k] = points[here]
    batches = draws.reshape(400, -1, d).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    return draws.mean(axis=0), draws.std(axis=0, ddof=1), error, accepted / PROPOSALS


lines = [("data", "parameter", "mean", "sd", "error")]
for name, (names, cells, y, most) in {"visits": visits(), "voters": voters()}.items():
    long = (np.sqrt((cells**2).sum(axis=1)) > most).mean()
    cells = shortened(cells, most)
    mean, sd, error, accepted = sample(cells, y, 20261119)
    print(f"{name}: {len(y)} rows, {long:.3f} of them shortened, {accepted:.3f} accepted")
    for row in zip(names, mean, sd, error):
        lines.append((name, row[0], *(f"{value:.6g}" for value in row[1:])))
with open(pathlib.Path(__file__).parent / "private_reference.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows(lines)
