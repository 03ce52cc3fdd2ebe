"""PyTorch modules: their gradients are those of the built-in models, and of autograd client by
client.
"""

import doctest

import consilience
import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: `cargo xtask test --torch` runs these"
)

import consilience.torch  # noqa: E402

SITES = ("a", "b", "c")
rng = np.random.default_rng(11)
X = {site: rng.normal(size=(rows, 3)) for site, rows in zip(SITES, (40, 25, 31))}
Y = {
    site: (rng.random(len(x)) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.2]))).astype(float)
    for site, x in X.items()
}
QUICK = dict(iterations=120, chains=1, seed=3, prior=4.0, step=0.003, progress=False)


def logistic(dtype=torch.float64):
    module = torch.nn.Sequential(torch.nn.Linear(3, 1, bias=False), torch.nn.Flatten(0)).to(dtype)
    torch.nn.init.zeros_(module[0].weight)
    return consilience.torch.Model(
        module,
        torch.nn.BCEWithLogitsLoss(reduction="sum"),
        {site: (X[site], Y[site]) for site in SITES},
        chunk=16,
    )


@pytest.mark.parametrize("sampler", ["lmc", "qlsd++", "b-elf", "vr-fald*"])
@pytest.mark.parametrize("batch", [8, 0.3])
def test_a_logistic_regression_gives_the_built_in_chain(sampler, batch):
    settings = (
        QUICK | dict(sampler=sampler) | ({} if sampler in ("lmc", "b-elf") else dict(batch=batch))
    )
    built_in = consilience.sample(
        "logistic", {site: (X[site], Y[site]) for site in SITES}, intercept=False, **settings
    )
    assert np.abs(consilience.sample(logistic(), **settings).draws - built_in.draws).max() < 1e-10
    # With 32 bits a gradient of size 10 is off by some 1e-6, and a chain of 120 steps of 0.003 by
    # less.
    assert (
        np.abs(consilience.sample(logistic(torch.float32), **settings).draws - built_in.draws).max()
        < 1e-4
    )


def network():
    torch.manual_seed(5)
    layers = [
        torch.nn.Conv2d(1, 2, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 3),
    ]
    return torch.nn.Sequential(*layers).double()


IMAGES = {
    site: (torch.randn(rows, 1, 6, 6, dtype=torch.float64), torch.randint(0, 3, (rows,)))
    for site, rows in zip(SITES, (9, 12, 7))
}


def test_stacked_gradients_are_those_of_autograd_one_by_one():
    module = network()
    model = consilience.torch.Model(module, torch.nn.CrossEntropyLoss(reduction="none"), IMAGES)
    checked = []

    def one(point, site, rows):
        inputs, targets = IMAGES[site]
        own = network()
        torch.nn.utils.vector_to_parameters(torch.from_numpy(point), own.parameters())
        torch.nn.functional.cross_entropy(
            own(inputs[rows]), targets[rows], reduction="sum"
        ).backward()
        return torch.cat([weights.grad.flatten() for weights in own.parameters()]).numpy()

    def compared(batch):
        model.gradients(batch)
        for k, (site, x, rows, out) in enumerate(batch):
            expected = one(x.copy(), site, rows) - (
                0.0 if batch.z is None else one(batch.z[k].copy(), site, rows)
            )
            assert np.allclose(out, expected, rtol=1e-10, atol=1e-12)
            checked.append((batch.z is not None, isinstance(rows, slice)))

    own = consilience.Model(
        model.parameters, model.rows, compared, differences=True, start=model.start
    )
    for sampler in ["sgld", "qlsd++", "vr-fald*", "fald"]:
        for batch in [4, 0.5]:
            consilience.sample(own, sampler=sampler, batch=batch, **QUICK | dict(iterations=12))
    assert {(False, True), (False, False), (True, False)} <= set(checked)


def nested():
    from torch.nn import Conv2d, Flatten, GELU, Linear, MaxPool2d, ReLU, Sequential, Tanh

    # Strides, dilation and padding by which something is left over at the edges, a pool of the
    # images themselves, and no bias here and there.
    seen = Sequential(
        MaxPool2d((1, 2)),
        Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), bias=False),
        Tanh(),
        MaxPool2d((2, 3)),
        Conv2d(3, 4, 2, padding=1),
        GELU(),
        Flatten(),
    )
    return Sequential(seen, Linear(36, 5, bias=False), ReLU(), Linear(5, 3))


def flat():
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.ReLU(),
        torch.nn.Linear(126, 4),
        torch.nn.Softplus(),
        torch.nn.Linear(4, 3),
    )


def dilated():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, (3, 2), dilation=(2, 3), stride=(1, 2)),
        torch.nn.Conv2d(3, 2, (2, 2), stride=(2, 1)),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
    )


def pooled_at_the_end():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 2), torch.nn.SiLU(), torch.nn.MaxPool2d((5, 6))
    )


class Residual(torch.nn.Module):
    """Not a sequence."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(126, 126), torch.nn.Linear(126, 3)

    def forward(self, x):
        x = x.flatten(1)
        return self.last(x + torch.tanh(self.first(x)))


def frozen():
    module = flat()
    module[2].bias.requires_grad_(False)
    return module


@pytest.mark.parametrize("layout", [nested, flat, dilated, pooled_at_the_end, Residual, frozen])
def test_any_layers_have_the_gradients_of_autograd(layout):
    torch.manual_seed(7)
    module = layout().double()
    images = {
        site: (
            torch.randint(-1, 2, (rows, 2, 7, 9)).double(),
            torch.randn(rows, 3, dtype=torch.float64),
        )
        for site, rows in zip(SITES, (9, 12, 7))
    }

    def loss(outputs, targets):
        return (outputs.flatten(1) - targets).abs() ** 1.5

    model = consilience.torch.Model(module, loss, images, chunk=5)
    assert (model._layers is None) == (layout in (Residual, frozen))
    wanted = [weights for weights in module.parameters() if weights.requires_grad]
    draw = np.random.default_rng(2)

    def one(point, site, rows):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(point), wanted)
        inputs, targets = images[site]
        gradients = torch.autograd.grad(loss(module(inputs[rows]), targets[rows]).sum(), wanted)
        return torch.cat([gradient.flatten() for gradient in gradients]).numpy()

    def ask(rows, x, z):
        batch = consilience.Batch(SITES, len(model.start), model.gradients)
        batch._points[:3] = x
        batch._clients[:] = [0, 1, 2] * 2
        if z is not None:
            batch._points[3:] = z
        if rows:
            batch._list(6 * rows)[:] = np.tile(
                np.concatenate([draw.choice(7, rows, replace=False) for _ in SITES]), 2
            )
        batch._answer(3, z is not None, rows or -1, x.ndim == 1, z is not None and z.ndim == 1)
        for k, (site, point, chosen, out) in enumerate(batch):
            expected = one(point.copy(), site, chosen) - (
                0.0 if z is None else one(batch.z[k].copy(), site, chosen)
            )
            assert np.allclose(out, expected, rtol=1e-9, atol=1e-10)

    x = model.start + 0.1 * draw.normal(size=(3, len(model.start)))
    for rows in (4, 1, None):
        ask(rows, x, None)
        ask(rows, x[0], None)
        ask(rows, x, x[::-1])
        ask(rows, x, model.start)
    # Whole numbers all through: unlike places of a window are equally large, and the first counts.
    ask(4, draw.integers(-1, 2, size=x.shape).astype(float), None)
    model._rows_at_a_time = 8  # less than all lines at a time
    ask(4, x, model.start)
    ask(3, x, x[::-1])


def test_flat_vectors_are_the_modules_parameters():
    module = network()
    model = consilience.torch.Model(module, torch.nn.CrossEntropyLoss(reduction="sum"), IMAGES)
    assert (
        len(model.parameters)
        == sum(weights.numel() for weights in module.parameters())
        == len(model.start)
    )
    assert model.parameters[0] == "0.weight[0,0,0,0]" and model.parameters[-1] == "4.bias[2]"
    inputs = IMAGES["a"][0]
    told = model.outputs(model.start, inputs)
    assert told.shape == (1, 9, 3) and torch.allclose(told[0], module(inputs))
    result = consilience.sample(model, **QUICK | dict(step=1e-12, iterations=10))
    assert np.allclose(result.draws, model.start, atol=1e-4)


def test_what_is_no_sum_over_rows_is_refused():
    with pytest.raises(consilience.DataError, match="no sum over rows"):
        consilience.torch.Model(network(), torch.nn.CrossEntropyLoss(), IMAGES)
    with pytest.raises(consilience.DataError, match="no parameters"):
        consilience.torch.Model(
            torch.nn.Flatten(), torch.nn.CrossEntropyLoss(reduction="sum"), IMAGES
        )


def test_an_exception_of_torch_comes_out():
    images = IMAGES | {"b": (IMAGES["b"][0], torch.full((12,), 7))}
    model = consilience.torch.Model(network(), torch.nn.CrossEntropyLoss(reduction="sum"), images)
    with pytest.raises(IndexError):
        consilience.sample(model, **QUICK)


def test_the_example_in_the_docstring_runs():
    failed, attempted = doctest.testmod(consilience.torch)
    assert failed == 0 and attempted > 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("written", [True, False])
def test_a_gpu_has_the_same_chain_every_time_and_nearly_that_of_the_cpu(dtype, written):
    images = {site: (inputs.to(dtype), targets) for site, (inputs, targets) in IMAGES.items()}

    def chain(device):
        model = consilience.torch.Model(
            network().to(dtype), torch.nn.CrossEntropyLoss(reduction="sum"), images, device=device
        )
        if not written:
            model._layers = None
        result = consilience.sample(model, sampler="vr-fald*", batch=4, **QUICK)
        if device == "cuda":
            assert any(program._graph is not None for program in model._programs.values())
        return result

    on_cpu, on_gpu, again = chain("cpu"), chain("cuda"), chain("cuda")
    assert on_gpu.digest == again.digest
    # As between 32 and 64 bits on the CPU; TF32 would be off by a thousand times more.
    assert np.abs(on_cpu.draws - on_gpu.draws).max() < (1e-9 if dtype == torch.float64 else 1e-4)


def test_the_chapter_on_models_runs(chapter):
    shown = chapter("torch")
    assert (shown["chances"].argmax(1) == shown["data"]["zurich"][1]).float().mean() > 0.8
