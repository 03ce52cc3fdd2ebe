"""Write loo_draws.csv and loo_reference.csv: what ArviZ says of draws of models of offsets.csv.

    python make_loo_reference.py        (needs arviz 0.23, scipy, numpy)

Draws are normal around a maximum, with some correlation within chains, so that effective draws are
fewer than draws; log-likelihoods are scipy's. Nothing here is computed by this project.
"""

import warnings
from pathlib import Path

import arviz as az
import numpy as np
from scipy import special, stats

HERE = Path(__file__).parent
CHAINS, LENGTH = 4, 150
draw = np.random.default_rng(7)
table = np.genfromtxt(HERE / "offsets.csv", delimiter=",", names=True, dtype=None, encoding="utf8")
x, visits, ill, site = table["x"], table["visits"], table["ill"], table["site"]
offset = np.log(table["days"] / 100)


def chains(mean, sd):
    """Autoregressive chains of length LENGTH, as they stand in the file."""
    z = draw.normal(size=(CHAINS, LENGTH, len(mean)))
    for t in range(1, LENGTH):
        z[:, t] = 0.6 * z[:, t - 1] + 0.8 * z[:, t]
    return np.round(np.array(mean) + np.array(sd) * z, 6)


def predictors(draws):
    return draws[..., 0, None] + draws[..., 1, None] * x


def in_groups(draws):
    """The log-likelihood of each site, whose effect is integrated out by a fine sum."""
    v = np.linspace(-9, 9, 6001)
    out = np.empty((CHAINS, LENGTH, 3))
    for c in range(CHAINS):
        for s in range(LENGTH):
            t = predictors(draws)[c, s] + offset
            for g, name in enumerate(["north", "south", "west"]):
                mine = site == name
                rate = np.exp(t[mine, None] + draws[c, s, 2] * v)
                logs = stats.poisson.logpmf(visits[mine, None], rate).sum(axis=0)
                out[c, s, g] = special.logsumexp(logs + stats.norm.logpdf(v)) + np.log(v[1] - v[0])
    return out


def negative_binomial(draws):
    mean, shape = np.exp(predictors(draws) + offset), draws[..., 2, None]
    return stats.nbinom.logpmf(visits, shape, shape / (shape + mean))


def line(draws):
    return stats.norm.logpdf(visits, predictors(draws), draws[..., 2, None])


models = {
    "poisson": ([0.38, 0.29], [0.06, 0.05], ["intercept", "x"],
                lambda d: stats.poisson.logpmf(visits, np.exp(predictors(d) + offset))),
    "negative_binomial": ([0.38, 0.3, 3.0], [0.1, 0.1, 0.4], ["intercept", "x", "shape"],
                          negative_binomial),
    "logistic": ([-0.7, 0.4], [0.3, 0.3], ["intercept", "x"],
                 lambda d: stats.bernoulli.logpmf(ill, special.expit(predictors(d) + offset))),
    "linear": ([3.2, 1.0, 3.5], [0.3, 0.3, 0.25], ["intercept", "x", "sigma"], line),
    "groups": ([0.38, 0.29, 0.3], [0.06, 0.05, 0.04], ["intercept", "x", "sd(1 | site)"],
               in_groups),
}
lines, kept, found = [], ["model,chain,draw,values"], {}


def add(what, values):
    for k, value in enumerate(np.ravel(values)):
        lines.append(f"{what},{k},{value:.17g}")


warnings.simplefilter("ignore")
for name, (mean, sd, names, log_likelihood) in models.items():
    draws = chains(mean, sd)
    for c in range(CHAINS):
        for s in range(LENGTH):
            kept.append(f"{name},{c},{s}," + " ".join(f"{v:.6f}" for v in draws[c, s]))
    logs = log_likelihood(draws)
    posterior = {name: draws[..., k] for k, name in enumerate(names)}
    data = az.from_dict(posterior=posterior, log_likelihood={"y": logs})
    loo = found[name] = az.loo(data, pointwise=True)
    k = loo.pareto_k.values
    add(f"{name} elpd", loo.elpd_loo)
    add(f"{name} se", loo.se)
    add(f"{name} p_loo", loo.p_loo)
    add(f"{name} good_k", loo.good_k)
    good, huge = (k <= loo.good_k).sum(), (k > 1).sum()
    add(f"{name} by_k", [good, len(k) - good - huge, huge])
    if name != "groups":
        parts = [loo.loo_i.values[site == s].sum() for s in ["north", "south", "west"]]
        add(f"{name} sites", parts)
pair = az.compare({"a": found["poisson"], "b": found["negative_binomial"]}, method="pseudo-BMA")
worse = pair.iloc[1]
sign = -1 if pair.index[1] == "a" else 1
add("difference", sign * worse.elpd_diff)
add("difference se", worse.dse)
(HERE / "loo_draws.csv").write_text("\n".join(kept) + "\n")
(HERE / "loo_reference.csv").write_text("\n".join(["what,k,value", *lines]) + "\n")
