"""Make rows that lack values, and sample their posterior with every missing value as a parameter.

Writes missing.csv (the rows, of three sites) and missing_reference.csv (means, standard deviations
and Monte Carlo errors by NUTS on pooled rows). Needs PyMC, nutpie and ArviZ:

    pip install pymc nutpie arviz && python make_missing_reference.py
"""

import csv
from pathlib import Path

import arviz as az
import numpy as np
import nutpie
import pymc as pm
import pytensor.tensor as pt

HERE = Path(__file__).parent


def rows():
    """The more often `dose` and `weight` are missing the older somebody is. Wards differ in `ache`
    and `sick`."""
    rng = np.random.default_rng(17)
    wards = np.random.default_rng(18)
    made = []
    for site, count in [("north", 40), ("south", 65), ("west", 35)]:
        for k in range(count):
            if k % 7 == 0:
                effect = 0.8 * wards.normal()
            age = round(50 + 12 * rng.normal(), 1)
            male = int(rng.random() < 0.5)
            old = (age - 50) / 12
            dose = round(2 + 0.8 * old + 0.4 * male + rng.normal(), 3)
            weight = round(70 + 9 * male - 4 * old + 8 * rng.normal(), 1)
            t = 0.3 + 0.9 * (dose - 2) - 0.05 * (weight - 75) + 0.3 * old
            pain = round(t + 0.6 * rng.normal(), 3)
            ill = int(rng.random() < 1 / (1 + np.exp(-t)))
            visits = int(rng.poisson(np.exp(0.2 + 0.5 * t)))
            gone = 1 / (1 + np.exp(-(old - 0.6)))
            dose = "" if rng.random() < gone else dose
            weight = "" if rng.random() < 0.6 * gone else weight
            ache = round(t + effect + 0.6 * wards.normal(), 3)
            sick = int(wards.random() < 1 / (1 + np.exp(-t - effect)))
            ward = f"w{k // 7}"
            made.append([site, age, male, dose, weight, pain, ill, visits, ward, ache, sick])
    return made


def standardised(column):
    known = column[~np.isnan(column)]
    return (column - known.mean()) / known.std(ddof=1)


def effective(draws):
    return float(az.ess(draws, method="mean"))


def mcse_sd(draws):
    """The Monte Carlo error of a standard deviation, as ArviZ takes it."""
    squares = (draws - draws.mean()) ** 2
    variance = squares.mean()
    spread = ((squares**2).mean() - variance**2) / effective(squares)
    return np.sqrt(spread / variance / 4)


def main():
    made = rows()
    with open(HERE / "missing.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["site", "age", "male", "dose", "weight", "pain", "ill", "visits", "ward",
                      "ache", "sick"])
        out.writerows(made)
    column = lambda k: np.array([np.nan if row[k] == "" else float(row[k]) for row in made])
    age, male = standardised(column(1)), column(2)
    incomplete = {"dose": standardised(column(3)), "weight": standardised(column(4))}
    given = np.c_[np.ones(len(made)), age, male]
    with open(HERE / "missing_reference.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["model", "parameter", "mean", "sd", "mcse_mean", "mcse_sd"])
        wards = sorted({(row[0], row[8]) for row in made})
        ward = np.array([wards.index((row[0], row[8])) for row in made])
        for model, y, grouped in [
            ("linear", column(5), False),
            ("logistic", column(6), False),
            ("poisson", column(7), False),
            ("linear", column(9), True),
            ("logistic", column(10), True),
        ]:
            with pm.Model():
                beta = pm.Normal("beta", 0, 2.5, shape=5)
                t = beta[0] + beta[3] * age + beta[4] * male
                before = []
                for k, (name, x) in enumerate(incomplete.items()):
                    law = pm.Normal(f"law_{name}", 0, 2.5, shape=3 + k)
                    sd = pm.Exponential(f"sd_{name}", 1)
                    mean, lacks = pt.dot(given, law[:3]), np.isnan(x)
                    for i, other in enumerate(before):
                        mean = mean + law[3 + i] * other
                    pm.Normal(f"{name}_known", mean[~lacks], sd, observed=x[~lacks])
                    z = pm.Normal(f"{name}_z", 0, 1, shape=int(lacks.sum()))
                    drawn = mean[lacks] + sd * z
                    whole = pt.set_subtensor(pt.as_tensor(np.nan_to_num(x))[lacks], drawn)
                    before.append(whole)
                    t = t + beta[1 + k] * whole
                if grouped:
                    spread = pm.HalfStudentT("spread", nu=3, sigma=2.5)
                    t = t + spread * pm.Normal("effects", 0, 1, shape=len(wards))[ward]
                if model == "linear":
                    sigma = pm.HalfNormal("sigma", 2)
                    pm.Normal("y", t, sigma, observed=y)
                elif model == "logistic":
                    pm.Bernoulli("y", logit_p=t, observed=y)
                else:
                    pm.Poisson("y", pm.math.exp(t), observed=y)
                compiled = nutpie.compile_pymc_model(pm.modelcontext(None), backend="numba")
            trace = nutpie.sample(
                compiled, draws=5000, tune=1000, chains=4, cores=2, seed=3, progress_bar=False
            )
            names = {"intercept": ("beta", 0), "dose": ("beta", 1), "weight": ("beta", 2),
                     "age": ("beta", 3), "male": ("beta", 4)}
            if model == "linear":
                names["sigma"] = ("sigma", None)
            if grouped:
                names["sd(1 | ward)"] = ("spread", None)
            for j, name in enumerate(incomplete):
                for k, z in enumerate(["1", "age", "male", *list(incomplete)[:j]]):
                    names[f"{name} ~ {z}"] = (f"law_{name}", k)
            for name in incomplete:
                names[f"sd({name})"] = (f"sd_{name}", None)
            for name, (variable, k) in names.items():
                draws = trace.posterior[variable].values
                draws = draws if k is None else draws[..., k]
                spread = draws.std(ddof=1)
                error = spread / np.sqrt(effective(draws))
                numbers = [draws.mean(), spread, error, mcse_sd(draws)]
                title = f"{model}; wards" if grouped else model
                out.writerow([title, name, *(repr(float(n)) for n in numbers)])


main()
