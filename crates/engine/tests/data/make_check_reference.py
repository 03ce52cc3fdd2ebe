"""Draw responses anew with NumPy and SciPy, of the rows of offsets.csv and the draws of
loo_draws.csv: means and standard deviations of statistics over replicates, their p, Bayesian R^2 by
ArviZ (0.23), and the exact area under the ROC curve.

    python make_check_reference.py > check_reference.csv
"""

import csv
from pathlib import Path

import arviz as az
import numpy as np
from scipy import stats

HERE = Path(__file__).parent
rows = list(csv.DictReader(open(HERE / "offsets.csv")))
x = np.array([float(r["x"]) for r in rows])
days = np.array([float(r["days"]) for r in rows])
visits = np.array([float(r["visits"]) for r in rows])
ill = np.array([float(r["ill"]) for r in rows])
site = np.array([r["site"] for r in rows])

draws = {}
for line in list(csv.reader(open(HERE / "loo_draws.csv")))[1:]:
    draws.setdefault(line[0], []).append([float(v) for v in line[3].split(" ")])
rng = np.random.default_rng(20261118)


def statistics(model, y):
    """Of responses, one replicate a row."""
    if model == "logistic":
        return {}
    found = {"mean": y.mean(axis=1), "standard deviation": y.std(axis=1)}
    if model == "linear":
        found["skewness"] = stats.skew(y, axis=1)
    else:
        found["share of zeros"] = (y == 0).mean(axis=1)
    return found


for model in ["poisson", "negative_binomial", "logistic", "linear"]:
    d = np.array(draws[model])
    offset = 0 if model == "linear" else np.log(days / 100)
    t = d[:, :1] + d[:, 1:2] * x + offset
    y = ill if model == "logistic" else visits
    all_sums, again = [], 40
    for _ in range(again):
        if model == "poisson":
            new = rng.poisson(np.exp(t))
        elif model == "negative_binomial":
            k = d[:, 2:3]
            new = stats.nbinom.rvs(k, k / (k + np.exp(t)), random_state=rng)
        elif model == "logistic":
            new = rng.random(t.shape) < 1 / (1 + np.exp(-t))
        else:
            new = t + d[:, 2:3] * rng.standard_normal(t.shape)
        by_site = {f"site {s}": new[:, site == s].mean(axis=1) for s in sorted(set(site))}
        all_sums.append(statistics(model, new.astype(float)) | by_site)
    seen = statistics(model, y[None, :]) | {
        f"site {s}": y[None, site == s].mean(axis=1) for s in sorted(set(site))
    }
    for name, observed in seen.items():
        values = np.concatenate([sums[name] for sums in all_sums])
        above, below = (values >= observed).mean(), (values <= observed).mean()
        p = min(1, 2 * min(above, below))
        numbers = [observed[0], values.mean(), values.std(), p]
        print(",".join([model, name, *(f"{number:.12g}" for number in numbers)]))
    if model == "logistic":
        p = (1 / (1 + np.exp(-t))).mean(axis=0)
        u = stats.mannwhitneyu(p[y == 1], p[y == 0]).statistic
        print(f"{model},AUC,{u / (y == 1).sum() / (y == 0).sum():.12g},0,0,0")
    else:
        fitted = t if model == "linear" else np.exp(t)
        print(f"{model},R^2,{az.r2_samples(y, fitted).mean():.12g},0,0,0")
