"""Time the gradients of nets for 20 clients on a GPU by PyTorch: the peer of `consilience-bench
lenet_vrfald --cuda` and `consilience-bench resnet_fald --cuda`.

    python python/benchmarks/nets_gpu.py
    python python/benchmarks/nets_gpu.py --nets resnet20 --batches 25

Gradients are `torch.func.vmap` of `grad` over the clients, and a whole iteration is replayed as one
CUDA graph: minibatches, two points where there are control variates, noise in 32 bits and the step.
Prints a line of JSON for each net, batch and precision: milliseconds an iteration, the median of
the repeats.
"""

import argparse
import json
import statistics

import torch
from torch import nn

CLIENTS = 20
CLASSES = 10
STEP = 1e-7


class Frn(nn.Module):
    """Filter response normalisation: every channel of every image over its own mean square."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rate = torch.rsqrt(x.square().mean((-2, -1), keepdim=True) + 1e-6)
        return x * rate * self.weight + self.bias


class Block(nn.Module):
    """Two convolutions, and what goes past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.frn1 = Frn(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.frn2 = Frn(outputs)
        self.past = None
        if stride != 1 or inputs != outputs:
            self.past = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.silu(self.frn1(self.first(x)))
        y = self.frn2(self.second(y))
        return nn.functional.silu(y + (x if self.past is None else self.past(x)))


def lenet5() -> tuple[nn.Module, tuple[int, int, int]]:
    layers = [
        nn.Conv2d(1, 6, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, CLASSES),
    ]
    return nn.Sequential(*layers), (1, 28, 28)


def resnet20() -> tuple[nn.Module, tuple[int, int, int]]:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), Frn(16), nn.SiLU()]
    before = 16
    for width, stride in [(16, 1), (32, 2), (64, 2)]:
        for k in range(3):
            layers.append(Block(before, width, stride if k == 0 else 1))
            before = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)]
    return nn.Sequential(*layers), (3, 32, 32)


NETS = {"lenet5": lenet5, "resnet20": resnet20}


def milliseconds(name: str, batch: int, points: int, repeats: int, replays: int) -> float:
    """An iteration of all clients, at one point or, with control variates, at two."""
    module, shape = NETS[name]()
    module = module.cuda()
    start = {key: value.detach() for key, value in module.named_parameters()}
    x = {key: torch.stack([value] * CLIENTS) for key, value in start.items()}
    z = {key: value.clone() for key, value in x.items()}
    base = {key: torch.zeros_like(value) for key, value in x.items()}
    images = torch.randn(CLIENTS, 100, *shape, device="cuda")
    labels = torch.randint(0, CLASSES, (CLIENTS, 100), device="cuda")
    rows = torch.randint(0, 100, (CLIENTS, batch), device="cuda")

    def loss(parameters, image, label):
        said = torch.func.functional_call(module, parameters, (image,))
        return nn.functional.cross_entropy(said, label, reduction="sum")

    gradient = torch.func.vmap(torch.func.grad(loss))
    client = torch.arange(CLIENTS, device="cuda")[:, None]

    def iteration() -> None:
        some, seen = images[client, rows], labels[client, rows]
        at_x = gradient(x, some, seen)
        at_z = gradient(z, some, seen) if points == 2 else None
        for key, value in x.items():
            drift = at_x[key] if at_z is None else at_x[key] - at_z[key] + base[key]
            drift = drift + value / 0.2
            noise = torch.randn_like(value)
            value.add_(drift, alpha=-STEP).add_(noise, alpha=(2.0 * STEP) ** 0.5)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            iteration()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        iteration()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / replays)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=["lenet5", "resnet20"], choices=NETS)
    parser.add_argument("--batches", nargs="+", type=int, help="else 8 and 64, or 25")
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    for name in given.nets:
        points, usual, replays = (2, [8, 64], 100) if name == "lenet5" else (1, [25], 10)
        for batch in given.batches or usual:
            for tf32 in (False, True):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                torch.backends.cudnn.allow_tf32 = tf32
                taken = milliseconds(name, batch, points, given.repeats, replays)
                line = {"net": name, "batch": batch, "points": points, "tf32": tf32}
                print(json.dumps(line | {"milliseconds": round(taken, 4)}), flush=True)


if __name__ == "__main__":
    main()
