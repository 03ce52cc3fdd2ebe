"""Differentiate a sequence of known layers at many points at once: every client has its own
weights,
and one product of stacked matrices serves them all.

Rows come last in images, so that windows are gathered in long runs: an image is ``(lines, channels,
points, height, width, rows)``, anything flat is ``(lines, points, rows, features)``. A line is a
client. Where a difference of gradients is wanted there are two points, the second with a minus
sign: its gradient is never written down, since the two are one product of twice the length. What
comes before the first weights is the same at both, and there once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    Operation = Callable[[], Any]
    #: Writes a layer down: from what comes in, the layer's weights at each point, and where their
    #: gradient goes, to what goes out.
    Layer = Callable[["Tape", "Signal", list[torch.Tensor], torch.Tensor], "Signal"]


class Sized(NamedTuple):
    """A layer, and how many weights it has."""

    add: Layer
    size: int


class Signal(NamedTuple):
    """What goes from layer to layer, and the gradient of the loss by it; ``None`` where no weights
    come before.
    """

    value: torch.Tensor
    slope: torch.Tensor | None


class Tape:
    """The operations that give gradients, written down once for arrays that stay: one line for each
    line of ``out``, of ``inputs`` and of ``targets``; points may have one line for all.
    """

    def __init__(
        self,
        layers: Sequence[Sized],
        loss: Loss,
        points: Sequence[torch.Tensor],
        inputs: torch.Tensor,
        targets: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        #: How much room the arrays between the layers take.
        self.bytes = 0
        self._like = out
        self._forward: list[Operation] = []
        self._backward: list[list[Operation]] = []
        signal = self._shown(inputs)
        at = 0
        for add, size in layers:
            self._backward.append([])
            weights = [point[:, at : at + size].expand(len(out), size) for point in points]
            signal = add(self, signal, weights, out[:, at : at + size])
            at += size
        self._end(signal, loss, targets)

    def operations(self) -> list[Operation]:
        """All of them: forward, and back from the last layer to the first."""
        return self._forward + [
            operation for layer in reversed(self._backward) for operation in layer
        ]

    def room(self, shape: Sequence[int]) -> torch.Tensor:
        """An array that stays."""
        made: torch.Tensor = self._like.new_zeros(shape)
        self.bytes += made.nbytes
        return made

    def signal(self, shape: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """What goes out of a layer, and its slope."""
        return self.room(shape), self.room(shape)

    def forward(self, operation: Callable[..., Any], *operands: Any, **named: Any) -> None:
        """Do this on the way to the loss."""
        self._forward.append(partial(operation, *operands, **named))

    def backward(self, operation: Callable[..., Any], *operands: Any, **named: Any) -> None:
        """Do this on the way back: later layers come first, and operations of one layer in this
        order.
        """
        self._backward[-1].append(partial(operation, *operands, **named))

    def _shown(self, inputs: torch.Tensor) -> Signal:
        if inputs.ndim != _STACKED_IMAGES:
            return Signal(inputs.unsqueeze(1), None)
        rows_last = inputs.permute(0, 2, 3, 4, 1).unsqueeze(2)
        value = self.room(rows_last.shape)
        self.forward(value.copy_, rows_last)
        return Signal(value, None)

    def _end(self, signal: Signal, loss: Loss, targets: torch.Tensor) -> None:
        """The gradient of the summed loss of all rows, which do not know of each other."""
        import torch

        value, slope = signal.value, signal.slope
        if slope is None:
            raise TypeError("no layer has weights")
        if value.ndim == _IMAGES:
            value, slope = value.permute(0, 2, 5, 1, 3, 4), slope.permute(0, 2, 5, 1, 3, 4)
        repeated = targets.unsqueeze(1).expand(*value.shape[:3], *targets.shape[2:])

        def end() -> None:
            rows = value.flatten(0, 2).requires_grad_()
            with torch.enable_grad():
                (by_rows,) = torch.autograd.grad(loss(rows, repeated.flatten(0, 2)).sum(), rows)
            slope.copy_(by_rows.view(slope.shape))
            slope[:, 1:].neg_()

        self.forward(end)


_STACKED_IMAGES, _IMAGES = 5, 6  # how many axes images have as they are given, and as they are kept


def layers_of(module: torch.nn.Module, inputs: torch.Tensor) -> list[Sized] | None:
    """The layers of a module, if it is a plain sequence of known ones on such inputs, and all
    weights want a gradient.
    """
    modules = _in_sequence(module) or []
    layers = [sized for sized in map(_known, modules) if sized]
    weights = list(module.parameters())
    own = sum(len(list(layer.parameters())) for layer in modules)
    plain = (
        len(layers) == len(modules)
        and own == len(weights)
        and all(weight.requires_grad for weight in weights)
    )
    # Else some are unknown, shared or fixed.
    return (
        layers
        if plain and weights and inputs.is_floating_point() and _fit(modules, inputs.ndim - 1)
        else None
    )


def _fit(modules: Sequence[torch.nn.Module], axes: int) -> bool:
    """Whether every layer meets rows of as many axes as it is written down for, here."""
    from torch import nn

    for layer in modules:
        wanted = (
            1
            if isinstance(layer, nn.Linear)
            else 3
            if isinstance(layer, (nn.Conv2d, nn.MaxPool2d))
            else axes
        )
        if axes != wanted or axes not in (1, 3):
            return False
        axes = 1 if isinstance(layer, nn.Flatten) else axes
    return True


def _in_sequence(module: torch.nn.Module) -> list[torch.nn.Module] | None:
    """The layers of a sequence, and of sequences in it; ``None`` where one of them has a hook."""
    from torch import nn

    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name, None) for name in hooks):
        return None
    if type(module) is not nn.Sequential:
        return [module]
    inner = [_in_sequence(layer) for layer in module]
    return None if None in inner else [layer for layers in inner for layer in layers or ()]


def _known(layer: torch.nn.Module) -> Sized | None:
    from torch import nn

    known: dict[type, Callable[[Any], Layer | None]] = {
        nn.Linear: _linear,
        nn.Conv2d: _convolution,
        nn.MaxPool2d: _largest,
        nn.Flatten: _flatten,
        nn.ReLU: _positive,
    }
    for one_by_one in (
        nn.Tanh,
        nn.Sigmoid,
        nn.GELU,
        nn.SiLU,
        nn.ELU,
        nn.LeakyReLU,
        nn.Softplus,
        nn.Identity,
    ):
        known[one_by_one] = _elementwise
    make = known.get(type(layer))
    add = make(layer) if make else None
    return (
        None if add is None else Sized(add, sum(weights.numel() for weights in layer.parameters()))
    )


def _linear(layer: Any) -> Layer:
    import torch

    size, biased = (layer.out_features, layer.in_features), layer.bias is not None
    cut = size[0] * size[1]

    def add(tape: Tape, before: Signal, weights: list[torch.Tensor], own: torch.Tensor) -> Signal:
        h, points = before.value, len(weights)
        lines, once, rows, _ = h.shape
        value, slope = tape.signal((lines, points, rows, size[0]))
        flat = tape.room((lines, rows, size[0])) if once < points else slope.flatten(1, 2)
        if once < points:
            tape.backward(torch.sum, slope, 1, out=flat)
        tape.backward(torch.bmm, flat.mT, h.flatten(1, 2), out=own[:, :cut].unflatten(1, size))
        if biased:
            tape.backward(torch.sum, flat, 1, out=own[:, cut:])
        for k, weight in enumerate(weights):
            matrix = weight[:, :cut].unflatten(1, size)
            tape.forward(torch.bmm, h[:, min(k, once - 1)], matrix.mT, out=value[:, k])
            if biased:
                tape.forward(value[:, k].add_, weight[:, None, cut:])
            if before.slope is not None:
                tape.backward(torch.bmm, slope[:, k], matrix, out=before.slope[:, k])
        return Signal(value, slope)

    return add


def _convolution(layer: Any) -> Layer | None:
    import torch

    if layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return None
    outward, inward, (high, wide), biased = (
        layer.out_channels,
        layer.in_channels,
        layer.kernel_size,
        layer.bias is not None,
    )
    (down, right), (below, beside), (far, apart) = layer.stride, layer.padding, layer.dilation
    size = (outward, inward * high * wide)
    cut = size[0] * size[1]

    def add(tape: Tape, before: Signal, weights: list[torch.Tensor], own: torch.Tensor) -> Signal:
        points = len(weights)
        lines, _, once, height, width, rows = before.value.shape
        height, width = height + 2 * below, width + 2 * beside
        tall, broad = (
            (height - far * (high - 1) - 1) // down + 1,
            (width - apart * (wide - 1) - 1) // right + 1,
        )

        def inside(padded: torch.Tensor) -> torch.Tensor:
            return padded[:, :, :, below : height - below, beside : width - beside]

        def window(padded: torch.Tensor, i: int, j: int) -> torch.Tensor:
            top, left = far * i, apart * j
            return padded[
                :,
                :,
                :,
                top : top + down * (tall - 1) + 1 : down,
                left : left + right * (broad - 1) + 1 : right,
            ]

        padded = before.value
        if below or beside:
            padded = tape.room((lines, inward, once, height, width, rows))
            tape.forward(inside(padded).copy_, before.value)
        line, channel, point, row, column, _ = padded.stride()
        shape = (lines, inward, high, wide, once, tall, broad, rows)
        windows = padded.as_strided(
            shape, (line, channel, far * row, apart * column, point, down * row, right * column, 1)
        )
        gathered = tape.room((lines, size[1], once, tall * broad * rows))
        tape.forward(gathered.view(shape).copy_, windows)

        images, slopes = tape.signal((lines, outward, points, tall, broad, rows))
        value, slope = images.flatten(3), slopes.flatten(3)
        flat = (
            tape.room((lines, outward, tall * broad * rows)) if once < points else slope.flatten(2)
        )
        if once < points:
            tape.backward(torch.sum, slope, 2, out=flat)
        tape.backward(torch.bmm, flat, gathered.flatten(2).mT, out=own[:, :cut].unflatten(1, size))
        if biased:
            tape.backward(torch.sum, flat, 2, out=own[:, cut:])
        scattered = None if before.slope is None else tape.room(gathered.shape)
        for k, weight in enumerate(weights):
            matrix = weight[:, :cut].unflatten(1, size)
            tape.forward(torch.bmm, matrix, gathered[:, :, min(k, once - 1)], out=value[:, :, k])
            if biased:
                tape.forward(value[:, :, k].add_, weight[:, cut:, None])
            if scattered is not None:
                tape.backward(torch.bmm, matrix.mT, slope[:, :, k], out=scattered[:, :, k])
        if scattered is not None and before.slope is not None:
            collected = tape.room(padded.shape)
            tape.backward(collected.zero_)
            for i in range(high):
                for j in range(wide):
                    tape.backward(window(collected, i, j).add_, scattered.view(shape)[:, :, i, j])
            tape.backward(before.slope.copy_, inside(collected))
        return Signal(images, slopes)

    return add


def _largest(layer: Any) -> Layer | None:
    import torch

    high, wide = _pair(layer.kernel_size)
    if (
        _pair(layer.stride) != (high, wide)
        or _pair(layer.padding) != (0, 0)
        or _pair(layer.dilation) != (1, 1)
        or layer.ceil_mode
        or layer.return_indices
    ):
        return None

    def add(tape: Tape, before: Signal, weights: list[torch.Tensor], own: torch.Tensor) -> Signal:
        lines, channels, points, height, width, rows = before.value.shape
        tall, broad = height // high, width // wide

        def places(image: torch.Tensor) -> list[torch.Tensor]:
            return [
                image[:, :, :, i : tall * high : high, j : broad * wide : wide]
                for i in range(high)
                for j in range(wide)
            ]

        most, slope = tape.signal((lines, channels, points, tall, broad, rows))
        first, *others = places(before.value)
        tape.forward(most.copy_, first)
        # By how much a place is larger than all before it: of equal ones the first counts.
        larger = [tape.room(most.shape) for _ in others]
        for other, by in zip(others, larger):
            tape.forward(torch.sub, other, most, out=by)
            tape.forward(torch.maximum, most, other, out=most)
        if before.slope is None:
            return Signal(most, None)
        first, *others = places(before.slope)
        here = tape.room(most.shape)
        for other, by in zip(reversed(others), reversed(larger)):
            tape.backward(
                torch.ops.aten.threshold_backward.grad_input, slope, by, 0, grad_input=here
            )
            tape.backward(other.copy_, here)
            tape.backward(slope.sub_, here)
        tape.backward(first.copy_, slope)
        return Signal(most, slope)

    return add


def _positive(layer: Any) -> Layer:
    import torch

    def add(tape: Tape, before: Signal, weights: list[torch.Tensor], own: torch.Tensor) -> Signal:
        value, slope = tape.signal(before.value.shape)
        tape.forward(torch.clamp_min, before.value, 0, out=value)
        if before.slope is None:
            return Signal(value, None)
        tape.backward(
            torch.ops.aten.threshold_backward.grad_input, slope, value, 0, grad_input=before.slope
        )
        return Signal(value, slope)

    return add


def _elementwise(layer: Any) -> Layer:
    import torch

    def add(tape: Tape, before: Signal, weights: list[torch.Tensor], own: torch.Tensor) -> Signal:
        value, slope = tape.signal(before.value.shape)
        kept: list[torch.Tensor] = []

        def forward() -> None:
            with torch.enable_grad():
                came = before.value.detach().requires_grad_()
                kept[:] = [came, layer(came)]
            value.copy_(kept[1])

        def backward(into: torch.Tensor) -> None:
            into.copy_(torch.autograd.grad(kept[1], kept[0], slope)[0])
            kept.clear()

        tape.forward(forward)
        if before.slope is None:
            return Signal(value, None)
        tape.backward(backward, before.slope)
        return Signal(value, slope)

    return add


def _flatten(layer: Any) -> Layer | None:
    if (layer.start_dim, layer.end_dim) != (1, -1):
        return None

    def add(tape: Tape, before: Signal, weights: list[torch.Tensor], own: torch.Tensor) -> Signal:
        if before.value.ndim != _IMAGES:
            return before
        lines, channels, points, height, width, rows = before.value.shape
        features = (channels, height, width)
        value, slope = tape.signal((lines, points, rows, channels * height * width))
        tape.forward(value.unflatten(3, features).copy_, before.value.permute(0, 2, 5, 1, 3, 4))
        if before.slope is None:
            return Signal(value, None)
        tape.backward(before.slope.copy_, slope.unflatten(3, features).permute(0, 3, 1, 4, 5, 2))
        return Signal(value, slope)

    return add


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
