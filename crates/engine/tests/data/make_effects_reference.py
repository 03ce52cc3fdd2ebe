"""Sample models whose groups have intercepts, with every effect as a parameter.

Takes the rows of groups.csv, writes them with an ordinal response (effects.csv), and means,
standard deviations and Monte Carlo errors on pooled rows (effects_reference.csv): by Hamiltonian
Monte Carlo with many chains side by side; errors are those of the chains' own means. Needs NumPy
and JAX:

    pip install numpy jax && python make_effects_reference.py
"""

import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

HERE = Path(__file__).parent
CHAINS, WARM, KEPT = 64, 500, 1500
jax.config.update("jax_enable_x64", True)


def spread(log_sd, scale):
    """The log-density of a half-normal standard deviation, on the logarithmic scale."""
    return log_sd - 0.5 * (jnp.exp(log_sd) / scale) ** 2


def logistic(own, t, y):
    return (y * t - jnp.logaddexp(0.0, t)).sum()


def negative_binomial(own, t, y):
    """Variance mean + mean^2 / shape; the shape is exponential(1)."""
    shape = jnp.exp(own[0])
    lgamma = jax.scipy.special.gammaln
    both = jnp.logaddexp(t, own[0])
    rows = lgamma(y + shape) - lgamma(shape) + shape * (own[0] - both) + y * (t - both)
    return rows.sum() + own[0] - shape


def student_t(own, t, y):
    """Four degrees of freedom; sigma is half-normal(2)."""
    z = (y - t) * jnp.exp(-own[0])
    return -2.5 * jnp.log1p(z**2 / 4.0).sum() - len(y) * own[0] + spread(own[0], 2.0)


def cuts_of(own):
    return own[0] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.exp(own[1:]))])


def ordinal(own, t, y):
    """Cut points are student_t(3, 0, 2.5) in their order."""
    cuts = cuts_of(own)
    below = jax.nn.sigmoid(cuts[None, :] - t[:, None])
    ends = jnp.concatenate([jnp.zeros((len(y), 1)), below, jnp.ones((len(y), 1))], axis=1)
    p = jnp.take_along_axis(jnp.diff(ends, axis=1), (y.astype(int) - 1)[:, None], 1)
    return jnp.log(p).sum() - 2.0 * jnp.log1p((cuts / 2.5) ** 2 / 3.0).sum() + own[1:].sum()


def density(loss, intercept, own, x, group, wards, y):
    """The log-density of: intercept, slope, the model's own, log sd(1 | ward), effects over it."""

    def of(theta):
        b, s = theta[:2], theta[2:2 + own]
        log_sd, v = theta[2 + own], theta[3 + own:]
        t = intercept * b[0] + b[1] * x + jnp.exp(log_sd) * v[group]
        return (
            loss(s, t, y) - 0.5 * (b**2).sum() / 6.25 - 0.5 * (v**2).sum() + spread(log_sd, 2.0)
        )

    return jax.vmap(jax.value_and_grad(of)), 3 + own + wards


def sample(both, dim, rng):
    """Chains side by side; scales are those of the second half of a warm-up."""

    @jax.jit
    def walk(theta, gradient, momentum, size, scale, steps):
        def leap(_, state):
            place, slope, momentum, _ = state
            momentum = momentum + 0.5 * size * scale * slope
            place = place + size * scale * momentum
            value, slope = both(place)
            return place, slope, momentum + 0.5 * size * scale * slope, value

        start = (theta, gradient, momentum, jnp.zeros(CHAINS))
        return jax.lax.fori_loop(0, steps, leap, start)

    theta = 0.1 * rng.normal(size=(CHAINS, dim))
    scale, step, seen, kept = np.ones(dim), 0.1, [], []
    value, gradient = map(np.asarray, both(theta))
    for k in range(2 * WARM + KEPT):
        if k == WARM:
            scale, seen, step = np.concatenate(seen[WARM // 2:]).std(0), [], 0.2
        momentum = rng.normal(size=theta.shape)
        here = value - 0.5 * (momentum**2).sum(1)
        size = step * (0.8 + 0.4 * rng.random((CHAINS, 1)))
        found = walk(theta, gradient, momentum, size, scale, int(rng.integers(8, 25)))
        place, slope, momentum, there = map(np.asarray, found)
        chance = np.exp(np.minimum(there - 0.5 * (momentum**2).sum(1) - here, 0.0))
        chance = np.nan_to_num(chance)
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
    with open(HERE / "groups.csv", newline="") as file:
        made = list(csv.DictReader(file))
    for row in made:
        row["level"] = 1 + sum(float(row["pain"]) > cut for cut in (1.0, 2.0, 2.75))
    with open(HERE / "effects.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(made[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(made)
    names = sorted({(row["site"], row["ward"]) for row in made})
    group = np.array([names.index((row["site"], row["ward"])) for row in made])
    x = np.array([float(row["x"]) for row in made])
    with open(HERE / "effects_reference.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "response", "parameter", "mean", "sd", "mean_error", "sd_error"])
        for kind, response, loss, intercept, own in [
            ("logistic", "ill", logistic, 1.0, 0),
            ("negative_binomial", "visits", negative_binomial, 1.0, 1),
            ("ordinal", "level", ordinal, 0.0, 3),
            ("student_t", "pain", student_t, 1.0, 1),
        ]:
            y = np.array([float(row[response]) for row in made])
            both, dim = density(loss, intercept, own, x, group, len(names), y)
            drawn = sample(both, dim, np.random.default_rng(1))
            flat = drawn.reshape(-1, dim)
            of = {"intercept": flat[:, 0]} if intercept else {}
            of["x"] = flat[:, 1]
            if kind == "negative_binomial":
                of["shape"] = np.exp(flat[:, 2])
            if kind == "student_t":
                of["sigma"] = np.exp(flat[:, 2])
            if kind == "ordinal":
                cuts = np.asarray(jax.vmap(cuts_of)(flat[:, 2:5]))
                of |= {f"cut[{k + 1}|{k + 2}]": cuts[:, k] for k in range(3)}
            tau = np.exp(flat[:, 2 + own])
            of["sd(1 | ward)"] = tau
            for k, (site, ward) in enumerate(names):
                if site == "north":
                    of[f"north {ward}"] = tau * flat[:, 3 + own + k]
            for name, values in of.items():
                chains = values.reshape(KEPT, CHAINS)
                error = chains.mean(0).std(ddof=1) / CHAINS**0.5
                about = ((chains - values.mean()) ** 2).mean(0)
                deviation = about.std(ddof=1) / CHAINS**0.5 / (2 * values.std())
                numbers = [values.mean(), values.std(), error, deviation]
                writer.writerow([kind, response, name] + [f"{number:.5f}" for number in numbers])


if __name__ == "__main__":
    main()
