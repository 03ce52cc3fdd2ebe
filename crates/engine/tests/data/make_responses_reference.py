"""Write responses.csv: rows, parameters and log-likelihoods by scipy.stats.

One line a number: model, what, place, value. `x` are the cells of a design of two columns, `y` the
responses (a time with a minus where it is censored), `at` coefficients and what stands beside them
on the natural scale, `log` the log-likelihood of every row there, constants included.
"""

import csv
import pathlib

import numpy as np
from scipy import stats

rng = np.random.default_rng(20240)
ROWS = 9
x = np.column_stack([np.ones(ROWS), rng.normal(size=ROWS)])


def normal(t, beside, y):
    return stats.norm.logpdf(y, t, beside[0])


def student_t(t, beside, y):
    return stats.t.logpdf(y, 7, t, beside[0])


def negative_binomial(t, beside, y):
    mean, shape = np.exp(t), beside[0]
    return stats.nbinom.logpmf(y, shape, shape / (shape + mean))


def weibull(t, beside, y):
    law = stats.weibull_min(beside[0], scale=np.exp(t))
    return np.where(y > 0, law.logpdf(np.abs(y)), law.logsf(np.abs(y)))


def ordinal(t, beside, y):
    cuts = np.concatenate([[-np.inf], beside, [np.inf]])
    level = y.astype(int)
    return np.log(stats.logistic.cdf(cuts[level] - t) - stats.logistic.cdf(cuts[level - 1] - t))


numbers = rng.normal(1.0, 2.0, size=ROWS)
times = rng.weibull(1.4, size=ROWS) * 3.0 * np.where(np.arange(ROWS) % 3 == 1, -1, 1)
MODELS = {
    "linear": (normal, numbers, [[0.4, -0.3, 1.7], [1.2, 0.8, 0.6]]),
    "student_t": (student_t, numbers, [[0.4, -0.3, 1.7], [1.2, 0.8, 0.6]]),
    "negative_binomial": (
        negative_binomial,
        np.array([0, 3, 1, 0, 12, 2, 0, 90, 5]),
        [[0.4, -0.3, 1.7], [1.2, 0.8, 0.06]],
    ),
    "weibull": (weibull, times, [[0.4, -0.3, 1.7], [1.2, 0.8, 0.6]]),
    "ordinal": (
        ordinal,
        np.array([1, 4, 2, 3, 3, 1, 4, 2, 2]),
        [[0.4, -0.3, -1.0, 0.2, 1.4], [0.0, 0.8, -0.3, -0.2, 0.1]],
    ),
}

with open(pathlib.Path(__file__).with_name("responses.csv"), "w", newline="") as file:
    write = csv.writer(file, lineterminator="\n").writerow
    for model, (law, y, points) in MODELS.items():
        for place, cell in enumerate(x.ravel()):
            write([model, "x", place, repr(float(cell))])
        for place, value in enumerate(y):
            write([model, "y", place, repr(float(value))])
        for point in points:
            at = np.array(point)
            for place, value in enumerate(at):
                write([model, "at", place, repr(float(value))])
            for place, value in enumerate(law(x @ at[:2], at[2:], y)):
                write([model, "log", place, repr(float(value))])
