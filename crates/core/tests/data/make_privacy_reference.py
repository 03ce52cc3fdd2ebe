"""Make the references of the privacy accountant, privacy.csv, with Google's dp_accounting.

    pip install dp-accounting==0.6.0
    python make_privacy_reference.py > privacy.csv

A line is a scheme, z = noise sd / largest row gradient on the scale of a row's contribution, the
share q of rows, the rounds, delta, then three answers: epsilon at that delta, delta at that
epsilon, and epsilon by Renyi divergences (empty where the library has none).

The library's default interval is up to 8% loose; here it is at most 1/30 of the standard deviation
of one round's loss (and at least 1e-6), and halved until epsilon moves by less than 2e-5 of itself.
For subsets of a fixed size the library has no event: its discretisation is given the profile
q delta_G(log(1 + (exp(e) - 1)/q)) of Zhu, Dong and Wang (2022), and its mirror image below 0.
"""

import math
import random
import sys

import dp_accounting as dpa
import numpy as np
from dp_accounting import pld, rdp
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as losses
from scipy.stats import norm

ADD_REMOVE = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dpa.NeighboringRelation.REPLACE_ONE


def event(z, q):
    gaussian = dpa.GaussianDpEvent(z)
    return dpa.PoissonSampledDpEvent(q, gaussian) if q < 1 else gaussian


def poisson(z, q, rounds, relation, interval):
    accountant = pld.PLDAccountant(
        neighboring_relation=relation, value_discretization_interval=interval
    )
    accountant.compose(event(z, q), rounds)
    return accountant.get_epsilon, accountant.get_delta


def fixed(z, q, rounds, interval):
    mu = 2 / z

    def gaussian(e):
        return norm.cdf(mu / 2 - e / mu) - np.exp(e + norm.logcdf(-mu / 2 - e / mu))

    top = mu * mu / 2 + 9.5 * mu
    top = math.log1p(q * math.expm1(top)) if top < 700 else top + math.log(q)
    n = math.ceil(top / interval)
    above = np.arange(0, n + 1) * interval
    right = q * gaussian(np.log1p(np.expm1(above) / q))
    below = -above[:0:-1]
    left = 1 - np.exp(below) + np.exp(below) * right[:0:-1]
    profile = np.minimum.accumulate(np.clip(np.concatenate([left, right]), 0, 1))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -n, n, profile)
    composed = losses.PrivacyLossDistribution(pmf).self_compose(rounds)
    return composed.get_epsilon_for_delta, composed.get_delta_for_epsilon


def deviation(scheme, z, q):
    """The standard deviation of one round's loss, roughly, by quadrature."""
    mu = 2 / z if scheme == "fixed-replace" else 1 / z
    x = np.linspace(-9, 9 + mu, 20001)
    ratio = np.logaddexp(math.log1p(-q) if q < 1 else -np.inf, math.log(q) + mu * x - mu * mu / 2)
    if scheme == "poisson-replace":
        other = np.logaddexp(
            math.log1p(-q) if q < 1 else -np.inf, math.log(q) - mu * x - mu * mu / 2
        )
        ratio = ratio - other
    weight = (1 - q) * norm.pdf(x) + q * norm.pdf(x - mu)
    weight /= weight.sum()
    mean = (weight * ratio).sum()
    return math.sqrt((weight * (ratio - mean) ** 2).sum())


def answers(scheme, z, q, rounds, delta):
    def composed(interval):
        if scheme == "fixed-replace":
            return fixed(z, q, rounds, interval)
        relation = REPLACE if scheme == "poisson-replace" else ADD_REMOVE
        return poisson(z, q, rounds, relation, interval)

    interval = max(1e-6, min(1e-4, deviation(scheme, z, q) / 30))
    epsilon = composed(interval)[0](delta)
    for _ in range(4):
        interval /= 2
        of_delta, of_epsilon = composed(interval)
        finer = of_delta(delta)
        moved, epsilon = abs(epsilon / finer - 1), finer
        if moved < 2e-5 or interval < 1e-6:
            break
    epsilon = float(f"{epsilon:.7g}")
    renyi = ""
    if scheme == "poisson-add-remove":
        accountant = rdp.RdpAccountant(neighboring_relation=ADD_REMOVE)
        accountant.compose(event(z, q), rounds)
        renyi = f"{accountant.get_epsilon(delta):.7g}"
    return f"{epsilon:.7g},{of_epsilon(epsilon):.6g},{renyi}"


# The settings that the documentation of the accountant quotes, then others by chance.
NAMED = [
    ("poisson-add-remove", *line)
    for line in [
        (0.7, 0.01, 1, 1e-5),
        (1, 0.01, 1000, 1e-5),
        (1, 0.01, 100000, 1e-5),
        (1.1, 0.00427, 14062, 1e-5),
        (2, 0.5, 20, 1e-5),
        (4, 0.2, 1000, 1e-5),
        (14.1421, 0.1, 1000, 1e-5),
        (40, 0.004, 10000, 1e-5),
        (1, 1, 1, 1e-5),
        (0.5, 0.001, 100, 1e-6),
        (0.6, 0.001, 10000, 1e-6),
        (1.5, 0.2, 50, 1e-6),
        (2, 0.1, 100, 1e-6),
        (4, 0.05, 10000, 1e-6),
        (16, 0.5, 2000, 1e-6),
        (100, 0.25, 100000, 1e-6),
        (70.7107, 1, 100000, 1e-7),
        (1, 0.01, 1000, 1e-8),
        (8, 0.001, 10000, 1e-8),
    ]
]
NAMED += [
    ("poisson-replace", *line)
    for line in [
        (1, 0.01, 1000, 1e-5),
        (4, 0.2, 1000, 1e-5),
        (14.1421, 0.1, 1000, 1e-5),
        (2, 0.1, 100, 1e-6),
    ]
]
NAMED += [
    ("fixed-replace", *line)
    for line in [
        (2, 0.01, 1000, 1e-5),
        (8, 0.2, 1000, 1e-5),
        (14.1421, 0.1, 1000, 1e-5),
        (4, 0.1, 100, 1e-6),
        (200, 0.25, 100000, 1e-6),
    ]
]


def by_chance(count):
    """Settings whose central estimate of mu = sqrt(rounds (exp(1/z^2) - 1)) q is in [0.05, 4]."""
    chance = random.Random(7)
    schemes = ["poisson-add-remove", "poisson-replace", "fixed-replace", "poisson-add-remove"]
    while count > 0:
        scheme = schemes[count % 4]
        z = float(f"{math.exp(chance.uniform(math.log(0.7), math.log(60))):.3g}")
        q = float(f"{math.exp(chance.uniform(math.log(0.001), 0)):.2g}")
        rounds = int(float(f"{math.exp(chance.uniform(0, math.log(2e4))):.2g}"))
        delta = chance.choice([1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
        times = 1 if scheme == "poisson-add-remove" else 2
        mu = times * q * math.sqrt(rounds * math.expm1(1 / z**2))
        if not 0.05 < mu < 4 or scheme == "fixed-replace" and z < 1.4:
            continue
        count -= 1
        yield scheme, z, q, rounds, delta


def main():
    print("scheme,z,q,rounds,delta,epsilon,delta_at_epsilon,renyi")
    for scheme, z, q, rounds, delta in [*NAMED, *by_chance(192)]:
        line = answers(scheme, z, q, rounds, delta)
        print(f"{scheme},{z},{q},{rounds},{delta},{line}", flush=True)
        print(".", end="", file=sys.stderr, flush=True)


main()
