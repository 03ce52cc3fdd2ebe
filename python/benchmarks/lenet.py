"""Sample the weights of LeNet5 on MNIST, dealt to 20 clients by label: accuracy, and time an
iteration.

    CONSILIENCE_DATA=folder python python/benchmarks/lenet.py --sampler "vr-fald*" \\
        --step 1e-6 --iterations 2000
    CONSILIENCE_DATA=folder python python/benchmarks/lenet.py --peer "vrfald.py --impl torch"

The folder has mnist/train-images-idx3-ubyte and the other three files, plain or with .gz or .xz.
Passes over all rows, at points of reference, are timed apart: there are few of them in a long run.

A peer is a script that does the same iterations and prints a line of JSON with its cpu_seconds for
so many iters, the best of some repeats. It is run before and after, on the same core, and the ratio
is that of the best CPU times of five iterations: what else a machine does adds to both, and least
to the best.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import consilience
import consilience.torch
import numpy as np
import torch

SETTINGS = {
    "vr-fald*": dict(
        step=1e-7, batch=8, synchronise={"probability": 1 / 20}, refresh=8 / 60000, correlation=0.0
    ),
    "qlsd++": dict(step=1e-7, batch=8, refresh=7500, compress="qsgd(256)"),
}


def read(name: str) -> np.ndarray:
    """One idx file of bytes."""
    path = Path(os.environ["CONSILIENCE_DATA"]) / "mnist" / name
    opener, found = next(
        (o, p)
        for o, p in [(open, path), (gzip.open, f"{path}.gz"), (lzma.open, f"{path}.xz")]
        if os.path.exists(p)
    )
    with opener(found, "rb") as file:
        content = file.read()
    shape = np.frombuffer(content, ">u4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape.astype(int))


def images(kind: str) -> tuple[np.ndarray, np.ndarray]:
    pixels = read(f"{kind}-images-idx3-ubyte")[:, None] / np.float32(255)
    return pixels, read(f"{kind}-labels-idx1-ubyte").astype(np.int64)


def deal(labels: np.ndarray, clients: int) -> list[np.ndarray]:
    """Four fifths of a label's rows go to the clients that count up to it, modulo ten; the rest
    evenly. Everybody has equally many.
    """
    rng = np.random.default_rng(1)
    own: list[list[int]] = [[] for _ in range(clients)]
    rest: list[int] = []
    for label in range(10):
        rows = rng.permutation(np.flatnonzero(labels == label))
        theirs, left = np.split(rows, [len(rows) * 4 // 5])
        rest.extend(left)
        holders = range(label % clients, clients, 10)
        for holder, part in zip(holders, np.array_split(theirs, len(holders))):
            own[holder].extend(part)
    shares = np.array_split(rng.permutation(rest), clients)
    dealt = [np.concatenate([a, b]).astype(int) for a, b in zip(own, shares)]
    least = min(map(len, dealt))
    return [np.sort(rng.permutation(rows)[:least]) for rows in dealt]


def lenet() -> torch.nn.Module:
    from torch.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential

    torch.manual_seed(11)
    convolutions = [
        Conv2d(1, 6, 5, padding=2),
        MaxPool2d(2),
        ReLU(),
        Conv2d(6, 16, 5),
        MaxPool2d(2),
        ReLU(),
        Flatten(),
    ]
    return Sequential(
        *convolutions, Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10)
    )


class Timed:
    """The model, and when it was called and how long it took."""

    def __init__(self, model: consilience.torch.Model) -> None:
        self.model, self.passes = model, 0.0
        self.starts: list[float] = []
        self.worked: list[float] = []
        self.spent: list[float] = []
        for name in ("parameters", "rows", "differences", "resolution", "start"):
            setattr(self, name, getattr(model, name))

    def gradients(self, batch: consilience.Batch) -> None:
        started = time.perf_counter()
        self.model.gradients(batch)
        spent = time.perf_counter() - started
        if batch.rows is None:
            self.passes += spent
        else:
            self.starts.append(started)
            self.worked.append(time.process_time())
            self.spent.append(spent)


BLOCK = 5


def best(times: list[float]) -> float:
    """The least time of five iterations in a row, in milliseconds an iteration."""
    ticks = np.array(times)
    return float((ticks[BLOCK:] - ticks[:-BLOCK]).min() / BLOCK * 1e3)


def of_peer(command: str) -> float:
    """The same of a peer."""
    done = subprocess.run(
        [sys.executable, *shlex.split(command), "--iters", str(BLOCK)],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    return told["cpu_seconds"] / told["iters"] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sampler", choices=SETTINGS, default="vr-fald*")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--step", type=float)
    parser.add_argument(
        "--refresh",
        type=float,
        help="how likely the point of reference moves, or every so many iterations for qlsd++",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--no-graph",
        action="store_true",
        help="a GPU does one operation after the other, and replays nothing",
    )
    parser.add_argument("--peer", help="a script to be held against, with its options")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.no_graph:
        consilience._program._RUNS_BEFORE_GRAPH = sys.maxsize
    peers = [of_peer(given.peer)] if given.peer else []
    if given.threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pixels, labels = images("train")
    data = {
        f"site {k + 1}": (pixels[rows], labels[rows])
        for k, rows in enumerate(deal(labels, given.clients))
    }
    model = Timed(
        consilience.torch.Model(
            lenet(), torch.nn.CrossEntropyLoss(reduction="sum"), data, device=given.device
        )
    )
    told = {
        "step": given.step,
        "refresh": given.refresh
        if given.sampler == "vr-fald*"
        else given.refresh and int(given.refresh),
    }
    settings = SETTINGS[given.sampler] | {name: value for name, value in told.items() if value}
    result = consilience.sample(
        model,
        sampler=given.sampler,
        prior=0.2,
        chains=1,
        iterations=given.iterations,
        burn_in=given.iterations // 2,
        thin=max(1, given.iterations // 1000),
        seed=1,
        **settings,
    )
    pixels, labels = images("t10k")
    draws = result.draws[0, :: max(1, result.draws.shape[1] // 20)]
    chances = model.model.outputs(draws, pixels).softmax(-1).mean(0).cpu().numpy()
    accuracy = (chances.argmax(1) == labels).mean()
    nll = -np.log(chances[np.arange(len(labels)), labels]).mean()
    # The median: what else the machine does, and passes over all rows, fall on few iterations.
    whole, module = (np.median(times) * 1e3 for times in (np.diff(model.starts), model.spent))
    print(
        f"{given.sampler}, {given.clients} clients, {len(result.parameters)} parameters, "
        f"{given.iterations} iterations, {given.device}{' without a graph' * given.no_graph}, "
        f"{given.threads} threads: "
        f"{whole:.1f} ms an iteration, of which the module {module:.1f} ms; "
        f"{best(model.worked):.1f} ms of CPU at best; passes over all rows {model.passes:.1f} s; "
        f"accuracy {accuracy:.4f}, {nll:.4f} nats a test row, by {len(draws)} draws; "
        f"{result.bits['up'] / 8e6:.0f} MB up, {result.bits['down'] / 8e6:.0f} MB down; digest "
        f"{result.digest}"
    )
    if given.peer:
        peers.append(of_peer(given.peer))
        print(
            f"{given.peer}: {' and '.join(f'{peer:.1f}' for peer in peers)} ms of CPU at best, "
            f"{min(peers) / best(model.worked):.2f} times ours"
        )


if __name__ == "__main__":
    main()
