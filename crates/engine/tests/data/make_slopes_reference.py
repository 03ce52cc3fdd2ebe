"""Make rows in groups whose slopes differ, and sample their posterior with every effect as a
parameter.

Writes slopes.csv (the rows) and slopes_reference.csv (means, standard deviations and Monte Carlo
errors on pooled rows, by Hamiltonian Monte Carlo with many chains side by side and the gradient
written by hand; errors are those of the chains' own means). Needs NumPy:

    pip install numpy && python make_slopes_reference.py
"""

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
CHAINS, WARM, KEPT = 64, 600, 1200


def rows():
    """Three sites with four to six wards each, of 4 to 12 rows."""
    rng = np.random.default_rng(11)
    made = []
    for site, wards in zip(["north", "south", "west"], [4, 6, 5]):
        for ward in range(wards):
            v = rng.normal(size=2)
            effect = 0.8 * v[0]
            slope = 0.7 * (-0.5 * v[0] + np.sqrt(0.75) * v[1])
            for _ in range(rng.integers(4, 13)):
                x = round(rng.normal(), 3)
                t = effect + slope * x
                ill = int(rng.random() < 1 / (1 + np.exp(0.4 - 0.8 * x - t)))
                pain = round(2.0 + 0.5 * x + t + 0.6 * rng.normal(), 3)
                count = int(rng.poisson(np.exp(0.6 + 0.3 * x + 0.5 * t)))
                made.append((site, f"w{ward}", x, ill, pain, count))
    return made


class Posterior:
    """Coefficients normal(0, 2.5), standard deviations half-normal(2), correlation LKJ(2): on the
    scales log(sd) and atanh(correlation), with standard normal effects. A row of `theta` is a
    chain: intercept, x, log sigma, log sd(1), log sd(x), atanh(correlation), v; what a model has
    not is standard normal, and moves nothing."""

    def __init__(self, kind, shape, x, group, wards, y):
        self.kind, self.shape, self.x, self.y = kind, shape, x, y
        self.member = np.zeros((len(x), wards))
        self.member[np.arange(len(x)), group] = 1.0
        self.wards, self.dim = wards, 6 + 2 * wards

    def parts(self, theta):
        own = np.zeros(len(theta)) if self.shape == "slope" else np.exp(theta[:, 3])
        along, sigma = np.exp(theta[:, 4]), np.exp(theta[:, 2])
        rho = np.tanh(theta[:, 5]) if self.shape == "correlated" else np.zeros(len(theta))
        v = theta[:, 6:].reshape(len(theta), self.wards, 2)
        effects = own[:, None] * v[:, :, 0]
        turned = rho[:, None] * v[:, :, 0] + np.sqrt(1 - rho**2)[:, None] * v[:, :, 1]
        return sigma, own, along, rho, v, effects, along[:, None] * turned

    def __call__(self, theta):
        """The log-density and its gradient."""
        sigma, own, along, rho, v, effects, slopes = self.parts(theta)
        t = theta[:, :1] + effects @ self.member.T
        t = t + (theta[:, 1:2] + slopes @ self.member.T) * self.x
        gradient = -theta.copy()  # of what is standard normal
        value = -0.5 * (theta[:, 6:] ** 2).sum(1) - 0.5 * (theta[:, :2] ** 2).sum(1) / 6.25
        gradient[:, :2] = -theta[:, :2] / 6.25
        if self.kind == "logistic":
            value += (self.y * t - np.logaddexp(0, t)).sum(1)
            s = self.y - 1 / (1 + np.exp(-t))
        elif self.kind == "poisson":
            mean = np.exp(np.minimum(t, 30.0))
            value += (self.y * t - mean).sum(1)
            s = self.y - mean
        else:
            z = (self.y - t) / sigma[:, None]
            value += -0.5 * (z**2).sum(1) - len(self.y) * theta[:, 2]
            s = z / sigma[:, None]
            value += theta[:, 2] - sigma**2 / 8
            gradient[:, 2] = (z**2 - 1).sum(1) + 1 - sigma**2 / 4
        if self.kind != "linear":
            value -= 0.5 * theta[:, 2] ** 2
        first, second = s @ self.member, (s * self.x) @ self.member
        gradient[:, 0] += s.sum(1)
        gradient[:, 1] += (s * self.x).sum(1)
        root = np.sqrt(1 - rho**2)
        of_v = gradient[:, 6:].reshape(v.shape)
        of_v[:, :, 0] += own[:, None] * first + (along * rho)[:, None] * second
        of_v[:, :, 1] += (along * root)[:, None] * second
        if self.shape == "slope":
            value -= 0.5 * theta[:, 3] ** 2
        else:
            value += theta[:, 3] - own**2 / 8
            gradient[:, 3] = (effects * first).sum(1) + 1 - own**2 / 4
        value += theta[:, 4] - along**2 / 8
        gradient[:, 4] = (slopes * second).sum(1) + 1 - along**2 / 4
        if self.shape == "correlated":
            value += 2 * np.log1p(-(rho**2))
            turn = along[:, None] * (v[:, :, 0] - (rho / root)[:, None] * v[:, :, 1])
            gradient[:, 5] = (turn * second).sum(1) * (1 - rho**2) - 4 * rho
        else:
            value -= 0.5 * theta[:, 5] ** 2
        return value, gradient


def check(posterior, rng):
    """The gradient is the finite difference of the value."""
    theta = 0.5 * rng.normal(size=(1, posterior.dim))
    gradient = posterior(theta)[1][0]
    for k in range(posterior.dim):
        up, down = theta.copy(), theta.copy()
        up[0, k] += 1e-5
        down[0, k] -= 1e-5
        found = (posterior(up)[0] - posterior(down)[0])[0] / 2e-5
        assert abs(found - gradient[k]) < 1e-5 * (1 + abs(found)), (k, found, gradient[k])


def sample(posterior, rng):
    """Chains side by side; scales are those of the second half of a warm-up."""
    theta = 0.1 * rng.normal(size=(CHAINS, posterior.dim))
    scale, step, seen, kept = np.ones(posterior.dim), 0.1, [], []
    value, gradient = posterior(theta)
    for k in range(2 * WARM + KEPT):
        if k == WARM:
            scale, seen, step = np.concatenate(seen[WARM // 2:]).std(0), [], 0.2
        momentum = rng.normal(size=theta.shape)
        here = value - 0.5 * (momentum**2).sum(1)
        place, slope, there = theta, gradient, value
        size = step * (0.8 + 0.4 * rng.random((CHAINS, 1)))
        for _ in range(rng.integers(8, 25)):
            momentum = momentum + 0.5 * size * scale * slope
            place = place + size * scale * momentum
            there, slope = posterior(place)
            momentum = momentum + 0.5 * size * scale * slope
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
    made = rows()
    with open(HERE / "slopes.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["site", "ward", "x", "ill", "pain", "visits"])
        writer.writerows(made)
    names = sorted({(site, ward) for site, ward, *_ in made})
    group = np.array([names.index((site, ward)) for site, ward, *_ in made])
    x = np.array([row[2] for row in made])
    with open(HERE / "slopes_reference.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "part", "parameter", "mean", "sd", "mean_error", "sd_error"])
        for kind, shape, part, column in [
            ("linear", "correlated", "(x | ward)", 4),
            ("logistic", "correlated", "(1 + x | ward)", 3),
            ("poisson", "independent", "(1 + x || ward)", 5),
            ("logistic", "slope", "(0 + x | ward)", 3),
        ]:
            rng = np.random.default_rng(1)
            y = np.array([row[column] for row in made], dtype=float)
            posterior = Posterior(kind, shape, x, group, len(names), y)
            check(posterior, rng)
            drawn = sample(posterior, rng)
            flat = drawn.reshape(-1, posterior.dim)
            sigma, own, along, rho, _, effects, slopes = posterior.parts(flat)
            of = {"intercept": flat[:, 0], "x": flat[:, 1]}
            if kind == "linear":
                of["sigma"] = sigma
            if shape != "slope":
                of["sd(1 | ward)"] = own
            of["sd(x | ward)"] = along
            if shape == "correlated":
                of["cor(1; x | ward)"] = rho
            for k, (site, ward) in enumerate(names):
                if site == "north" and shape != "slope":
                    of[f"north {ward}"] = effects[:, k]
                if site == "north":
                    of[f"north {ward}: x"] = slopes[:, k]
            for name, values in of.items():
                chains = values.reshape(KEPT, CHAINS)
                error = chains.mean(0).std(ddof=1) / CHAINS**0.5
                about = ((chains - values.mean()) ** 2).mean(0)
                spread = about.std(ddof=1) / CHAINS**0.5 / (2 * values.std())
                numbers = [values.mean(), values.std(), error, spread]
                writer.writerow([kind, part, name] + [f"{number:.5f}" for number in numbers])


if __name__ == "__main__":
    main()
