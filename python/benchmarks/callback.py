"""Time what a model of one's own costs beside itself: microseconds an iteration, for Gaussian
clients.

    python python/benchmarks/callback.py

The callback alone is the same function on a batch of the same shape, called in a loop; the overhead
is the rest of an iteration: the sampler, the border, the draws.
"""

from __future__ import annotations

import time

import consilience
import numpy as np

ITERATIONS = 40_000
REPEATS = 5


def best(work):
    """The least of a few times, in microseconds an iteration: other load only adds to it."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times) / ITERATIONS * 1e6


def measure(clients: int, dimension: int, sampler: str) -> tuple[float, float, float]:
    means = np.random.default_rng(1).normal(size=(clients, dimension))
    kept = []

    def gradients(batch):
        if not kept:
            kept.append(batch)
        np.subtract(batch.x, means[batch.clients], out=batch.out)

    sites = {f"site {k}": 1 for k in range(clients)}
    settings = dict(
        sampler=sampler,
        step=1e-3,
        chains=1,
        iterations=ITERATIONS,
        thin=100,
        seed=1,
        progress=False,
    )
    whole = best(
        lambda: consilience.sample(consilience.Model(dimension, sites, gradients), **settings)
    )
    batch = kept[0]
    alone = best(lambda: [gradients(batch) for _ in range(ITERATIONS)])
    given = {
        site: {"mean": mean, "precision": np.eye(dimension)} for site, mean in zip(sites, means)
    }
    built_in = best(lambda: consilience.sample("gaussian", given, **settings))
    return whole, alone, built_in


def main() -> None:
    print(
        f"{'sampler':<8} {'clients':>7} {'parameters':>10} {'iteration':>10} {'callback':>9} "
        f"{'overhead':>9} {'built in':>9}  (microseconds)"
    )
    for sampler in ("lmc", "vr-fald*"):
        for clients in (1, 10):
            for dimension in (2, 100):
                whole, alone, built_in = measure(clients, dimension, sampler)
                print(
                    f"{sampler:<8} {clients:>7} {dimension:>10} {whole:>10.1f} {alone:>9.1f} "
                    f"{whole - alone:>9.1f} {built_in:>9.1f}"
                )


if __name__ == "__main__":
    main()
