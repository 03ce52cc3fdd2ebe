"""Compute losses and gradients of nets with PyTorch, in 64 bits, for tests/nets_reference.rs.

    python3.11 -m venv venv && venv/bin/pip install torch==2.15.0
    venv/bin/python crates/core/tests/data/make_nets_reference.py

writes, beside itself,
    nets.csv   net,"loss",number; or net,length,norm of the gradient,up to eight of its entries

Parameters and rows are made by a formula, so that the file holds answers alone. A line of gradients
stands for one tensor of parameters, in PyTorch's order; its entries are at equal distances.
"""

import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
ROWS = 11


class FRN(nn.Module):
    """Singh and Krishnan (2020), without its threshold."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        nu = (x * x).mean((2, 3), keepdim=True)
        return self.weight[:, None, None] * x * torch.rsqrt(nu + 1e-6) + self.bias[:, None, None]


class Residual(nn.Module):
    def __init__(self, inner, shortcut):
        super().__init__()
        self.inner = inner
        self.shortcut = shortcut

    def forward(self, x):
        return self.inner(x) + self.shortcut(x)


class Pad(nn.Module):
    """Every second row and column, and channels of zeros."""

    def __init__(self, stride, more):
        super().__init__()
        self.stride, self.more = stride, more

    def forward(self, x):
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, 0, self.more))


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )


def resnet(blocks, width, outputs):
    def conv(a, b, stride):
        return nn.Conv2d(a, b, 3, stride=stride, padding=1, bias=False)

    layers, inputs = [conv(3, width, 1), FRN(width), nn.SiLU()], width
    for stage in range(3):
        for block in range(blocks):
            c, stride = width << stage, 2 if stage and not block else 1
            inner = nn.Sequential(
                conv(inputs, c, stride), FRN(c), nn.SiLU(), conv(c, c, 1), FRN(c)
            )
            same = inputs == c and stride == 1
            by = nn.Identity() if same else nn.Conv2d(inputs, c, 1, stride=stride, bias=False)
            layers += [Residual(inner, by), nn.SiLU()]
            inputs = c
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


CASES = {
    "lenet5": (lenet5(), (1, 28, 28), 10),
    "mlp": (
        nn.Sequential(nn.Flatten(), nn.Linear(784, 9), nn.ReLU(), nn.Linear(9, 10)),
        (1, 28, 28),
        10,
    ),
    "resnet": (resnet(1, 4, 5), (3, 12, 12), 5),
    "norms": (
        nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1), nn.GroupNorm(3, 6), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(6, 5, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(30, 4),
        ),
        (2, 8, 10),
        4,
    ),
    "strides": (
        nn.Sequential(
            nn.Conv2d(2, 3, 4, padding=1, stride=2), nn.SiLU(),
            Residual(
                nn.Sequential(nn.Conv2d(3, 5, 3, padding=1, stride=2), nn.Tanh()), Pad(2, 2)
            ),
            nn.Flatten(), nn.Linear(60, 3),
        ),
        (2, 14, 13),
        3,
    ),
}


def fill(net):
    for at, p in enumerate(net.parameters()):
        k = torch.arange(p.numel(), dtype=torch.float64)
        wave = torch.sin(0.7 * k + 0.01 * k * torch.cos(0.001 * k) + 1.3 * at)
        fan_in = p[0].numel() if p.dim() > 1 else 0
        value = wave * math.sqrt(2.0 / fan_in) if fan_in else 0.5 + 0.3 * wave
        with torch.no_grad():
            p.copy_(value.view_as(p))


def main():
    lines = []
    for name, (net, shape, outputs) in CASES.items():
        fill(net)
        size = math.prod(shape)
        k = torch.arange(ROWS * size, dtype=torch.float64)
        x = torch.cos(0.37 * k + 0.11 * torch.floor(k / size)).view(ROWS, *shape)
        y = torch.arange(ROWS) * 7 % outputs
        loss = F.cross_entropy(net(x), y, reduction="sum")
        loss.backward()
        lines.append(f"{name},loss,{loss.item():.14e}")
        for p in net.parameters():
            g = p.grad.reshape(-1)
            picks = g[:: -(-g.numel() // 8)]
            numbers = [g.norm().item(), *picks.tolist()]
            lines.append(f"{name},{g.numel()}," + ",".join(f"{v:.12e}" for v in numbers))
    Path(__file__).with_name("nets.csv").write_text("\n".join(lines) + "\n")


main()
