"""Make rows in groups, and sample their posterior with every group's effect as a parameter.

Writes groups.csv (the rows) and groups_reference.csv (means, standard deviations and Monte Carlo
errors by NUTS on pooled rows). Needs numpyro and ArviZ:

    pip install numpyro arviz && python make_groups_reference.py
"""

import csv
from functools import partial
from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

HERE = Path(__file__).parent
jax.config.update("jax_enable_x64", True)
numpyro.set_host_device_count(2)


def rows():
    """Three sites with four to six wards each, of 3 to 20 rows."""
    rng = np.random.default_rng(5)
    made = []
    for site, wards in zip(["north", "south", "west"], [4, 6, 5]):
        for ward in range(wards):
            effect = 0.9 * rng.normal()
            for _ in range(rng.integers(3, 21)):
                x = round(rng.normal(), 3)
                logit = -0.4 + 0.8 * x + effect
                ill = int(rng.random() < 1 / (1 + np.exp(-logit)))
                pain = round(2.0 + 0.5 * x + effect + 0.7 * rng.normal(), 3)
                count = int(rng.poisson(np.exp(0.6 + 0.3 * x + 0.5 * effect)))
                made.append((site, f"w{ward}", x, ill, pain, count))
    return made


def model(kind, x, group, wards, y):
    """Coefficients normal(0, 2.5), standard deviations half-normal(2)."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 2.5))
    slope = numpyro.sample("x", dist.Normal(0.0, 2.5))
    tau = numpyro.sample("sd(1 | ward)", dist.HalfNormal(2.0))
    with numpyro.plate("wards", wards):
        v = numpyro.sample("v", dist.Normal(0.0, 1.0))
    t = intercept + slope * x + tau * v[group]
    if kind == "logistic":
        numpyro.sample("y", dist.Bernoulli(logits=t), obs=y)
    elif kind == "poisson":
        numpyro.sample("y", dist.Poisson(jnp.exp(t)), obs=y)
    else:
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        numpyro.sample("y", dist.Normal(t, sigma), obs=y)


def main():
    made = rows()
    with open(HERE / "groups.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["site", "ward", "x", "ill", "pain", "visits"])
        writer.writerows(made)
    names = sorted({(site, ward) for site, ward, *_ in made})
    group = np.array([names.index((site, ward)) for site, ward, *_ in made])
    x = np.array([row[2] for row in made])
    with open(HERE / "groups_reference.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "response", "parameter", "mean", "sd", "mean_error", "sd_error"])
        for kind, response, column in [
            ("logistic", "ill", 3), ("linear", "pain", 4), ("poisson", "visits", 5)
        ]:
            y = np.array([row[column] for row in made])
            of_rows = partial(model, kind, jnp.array(x), jnp.array(group), len(names), jnp.array(y))
            kernel = NUTS(of_rows, target_accept_prob=0.95)
            mcmc = MCMC(kernel, num_warmup=2000, num_samples=10000, num_chains=4,
                        chain_method="sequential", progress_bar=False)
            mcmc.run(jax.random.PRNGKey(1))
            draws = mcmc.get_samples(group_by_chain=True)
            for name in ["intercept", "x", "sigma", "sd(1 | ward)"]:
                if name in draws:
                    of = np.asarray(draws[name])
                    writer.writerow([
                        kind, response, name, f"{of.mean():.5f}", f"{of.std():.5f}",
                        f"{float(az.mcse(of, method='mean')):.5f}",
                        f"{float(az.mcse(of, method='sd')):.5f}",
                    ])


if __name__ == "__main__":
    main()
