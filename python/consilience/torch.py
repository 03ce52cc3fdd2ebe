"""Sample the weights of a PyTorch module: minibatch gradients of all clients in one call.

>>> import torch, consilience.torch
>>> _ = torch.manual_seed(1)
>>> x = {site: torch.randn(rows, 3) for site, rows in {"basel": 40, "zurich": 30}.items()}
>>> data = {site: (inputs, (inputs[:, 0] > 0).long()) for site, inputs in x.items()}
>>> module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
>>> model = consilience.torch.Model(module, torch.nn.CrossEntropyLoss(reduction="sum"), data)
>>> result = consilience.sample(
...     model,
...     sampler="vr-fald*",
...     step=1e-3,
...     batch=8,
...     prior=1.0,
...     iterations=500,
...     chains=1,
...     seed=1,
...     progress=False,
... )
>>> result.draws.shape, result.parameters[:2]
((1, 50, 26), ['0.weight[0,0]', '0.weight[0,1]'])
>>> model.outputs(result.draws[0, -10:], x["basel"]).shape
torch.Size([10, 40, 2])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._layers import Tape, layers_of
from ._model import Batch, Floats, Rows, lines_by_size, of_lines
from ._program import Program
from .errors import DataError

if TYPE_CHECKING:
    import torch

__all__ = ["Model"]

#: So many bytes are still in a processor's cache when the way back needs them.
_CACHED = 16 * 2**20
#: So many programs are kept: clients have minibatches of a few sizes.
_PROGRAMS = 32


class Shape(NamedTuple):
    """What a program is made for: lines, rows a line, and how many lines each point has."""

    lines: int
    rows: int
    points: tuple[int, ...]


class Model:
    """A module and its loss as a model: the potential of a client is the sum of the loss over its
    rows, and the parameters are those of the module that want a gradient, as one flat vector.

    Minibatches of equal size are stacked: one call for all clients. A plain ``Sequential`` of
    ``Linear``, ``Conv2d``, ``MaxPool2d``, ``Flatten`` and activations is differentiated layer by
    layer, with products of stacked matrices; any other module by ``torch.func.vmap``. On a GPU a
    call is captured as a graph and replayed, so the loss must not look at its values. Gradients
    have the precision of the module's parameters (32 bits unless the module is made ``.double()``),
    chains have 64 bits. Chains start at the module's own parameters.

    Args:
        module: called with a stack of inputs. Rows must not know of each other: no batch
            normalisation in training mode, and no dropout.
        loss: of outputs and targets, summed over rows (``reduction="sum"``) or one number a row; a
            mean is refused.
        data: inputs and targets of each client.
        device: where it is computed, such as ``"cuda"``; the data and the module move there.
        chunk: at most so many rows at a time where all rows of a client are wanted.
    """

    #: It gives differences itself, so as to say a common point of reference once.
    differences = True

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        data: Mapping[str, tuple[Any, Any]],
        *,
        device: str | torch.device = "cpu",
        chunk: int = 512,
    ) -> None:
        import torch

        self.module = module.to(device)
        self.device = torch.device(device)
        self._loss = loss
        self._chunk = chunk
        named = {
            name: weights for name, weights in module.named_parameters() if weights.requires_grad
        }
        if not named:
            raise DataError(
                "the module has no parameters that want a gradient\n  give it some, or set "
                "requires_grad"
            )
        self._names = list(named)
        self._shapes = [weights.shape for weights in named.values()]
        self._sizes = [weights.numel() for weights in named.values()]
        self.dtype = next(iter(named.values())).dtype
        #: The parameters' names: the module's, with the place in each tensor.
        self.parameters = [
            name + place
            for name, shape in zip(self._names, self._shapes)
            for place in _places(shape)
        ]
        #: How many rows each client has.
        self.rows = {site: len(targets) for site, (_, targets) in data.items()}
        #: The relative error of a gradient.
        self.resolution = float(torch.finfo(self.dtype).eps)
        #: Where chains start.
        self.start: Floats = (
            torch.cat([weights.detach().flatten() for weights in named.values()])
            .cpu()
            .double()
            .numpy()
        )
        self._inputs = torch.cat([self._moved(inputs) for inputs, _ in data.values()])
        self._targets = torch.cat([self._moved(targets) for _, targets in data.values()])
        if len(self._inputs) != len(self._targets):
            raise DataError(
                f"there are {len(self._inputs)} inputs and {len(self._targets)} targets\n  give "
                f"every row both"
            )
        self._first = np.cumsum([0, *self.rows.values()])
        self._layers = layers_of(module, self._inputs)
        self._programs: dict[Shape, Program] = {}
        self._rows_at_a_time = self._cached_rows()
        self._check_sum()

    def gradients(self, batch: Batch) -> None:
        """Write sums of rows' gradients, or their differences, into ``batch.out``."""
        import torch

        out = torch.from_numpy(batch.out)
        for lines, rows in lines_by_size(batch):
            points = [
                of_lines(points, lines) for points in (batch.x, batch.z) if points is not None
            ]
            first = self._first[batch.clients[lines]]
            if rows is None:
                out[lines] = self._over_all(points, int(batch.clients[lines][0]))
            elif isinstance(lines, slice):
                self._stacked(points, rows + first[:, None], out)
            else:
                told = torch.empty((len(lines), out.shape[1]), dtype=out.dtype)
                self._stacked(points, rows + first[:, None], told)
                out[lines] = told

    def outputs(self, draws: npt.ArrayLike, inputs: Any) -> torch.Tensor:
        """The module's outputs for these inputs, with each of these draws as its weights."""
        import torch

        points = torch.tensor(
            np.atleast_2d(np.asarray(draws)), device=self.device, dtype=self.dtype
        )
        with torch.no_grad():
            return torch.stack([self._called(point, self._moved(inputs)) for point in points])

    def _stacked(self, points: list[Floats], listed: Rows, out: torch.Tensor) -> None:
        """Gradients at one point a line, or at one for all, over rows of all clients."""
        lines, rows = listed.shape
        at_a_time = max(1, self._rows_at_a_time // (rows * len(points)))
        for start in range(0, lines, at_a_time):
            these = slice(start, min(start + at_a_time, lines))
            count = these.stop - start
            some = [point if len(point) == 1 else point[these] for point in points]
            self._program(Shape(count, rows, tuple(map(len, some)))).gradients(
                some, listed[these], out[these]
            )

    def _over_all(self, points: list[Floats], client: int) -> torch.Tensor:
        """The same over all rows of one client."""
        import torch

        sums, told = (
            torch.zeros(points[0].shape, dtype=torch.float64),
            torch.empty(points[0].shape, dtype=torch.float64),
        )
        chunk = min(self._chunk, self._rows_at_a_time)
        for start in range(self._first[client], self._first[client + 1], chunk):
            listed = np.arange(start, min(start + chunk, self._first[client + 1]))[None]
            self._program(Shape(1, listed.shape[1], (1,) * len(points))).gradients(
                points, listed, told
            )
            sums += told
        return sums

    def _cached_rows(self) -> int:
        """How many rows a processor has the arrays of at hand; a GPU takes all, and so do PyTorch's
        own transforms.
        """
        if self._layers is None or self.device.type != "cpu":
            return sum(self.rows.values()) * 2
        return max(1, _CACHED // self._written(self._program(Shape(1, 1, (1,)))).bytes)

    def _program(self, shape: Shape) -> Program:
        """The program for this shape, which is kept."""
        import torch

        program = self._programs.get(shape)
        if program is None:
            if len(self._programs) >= _PROGRAMS:
                del self._programs[next(iter(self._programs))]
            like = torch.empty(len(self.start), device=self.device, dtype=self.dtype)
            operations = (
                self._vectorised
                if self._layers is None
                else lambda program: self._written(program).operations()
            )
            program = self._programs[shape] = Program(
                (self._inputs, self._targets),
                (shape.lines, shape.rows),
                shape.points,
                like,
                operations,
            )
        return program

    def _written(self, program: Program) -> Tape:
        """Known layers, one by one."""
        return Tape(
            self._layers or [],
            self._loss,
            program.points,
            program.inputs,
            program.targets,
            program.out,
        )

    def _vectorised(self, program: Program) -> list[Callable[[], Any]]:
        """Any module, by PyTorch's own transforms."""
        import torch

        gradient = torch.func.grad(self._potential)
        together, at_one = (
            torch.func.vmap(gradient),
            torch.func.vmap(gradient, in_dims=(None, 0, 0)),
        )

        def at(point: torch.Tensor) -> torch.Tensor:
            if len(program.out) == 1:
                return gradient(point[0], program.inputs[0], program.targets[0])[None]
            return (
                at_one(point[0], program.inputs, program.targets)
                if len(point) == 1
                else together(point, program.inputs, program.targets)
            )

        def operation() -> None:
            first, *others = [at(point) for point in program.points]
            program.out.copy_(first)
            for other in others:
                program.out.sub_(other)

        return [operation]

    def _weights(self, points: Floats) -> torch.Tensor:
        import torch

        return torch.from_numpy(points).to(self.device, self.dtype)

    def _potential(
        self, weights: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        return self._loss(self._called(weights, inputs), targets).sum()

    def _called(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        import torch

        parts = zip(self._names, weights.split(self._sizes), self._shapes)
        outputs: torch.Tensor = torch.func.functional_call(
            self.module, {name: part.view(shape) for name, part, shape in parts}, (inputs,)
        )
        return outputs

    def _moved(self, values: Any) -> torch.Tensor:
        import torch

        tensor = torch.as_tensor(values, device=self.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _check_sum(self) -> None:
        """Two rows together must be two rows apart: a mean, or rows that know of each other, would
        be another posterior.
        """
        import torch

        if len(self._inputs) < 2:
            return
        weights = self._weights(self.start)
        with torch.no_grad():
            apart = [
                float(self._potential(weights, self._inputs[k : k + 1], self._targets[k : k + 1]))
                for k in range(2)
            ]
            together = float(self._potential(weights, self._inputs[:2], self._targets[:2]))
        if abs(together - sum(apart)) > 1e-3 * (abs(apart[0]) + abs(apart[1])):
            raise DataError(
                f"the loss of the first two rows is {together:.6g} together, and {apart[0]:.6g} + "
                f"{apart[1]:.6g} apart: it is no sum over rows\n"
                '  use reduction="sum" or "none", and no batch normalisation in training mode'
            )


def _places(shape: tuple[int, ...]) -> list[str]:
    """The places in a tensor of this shape, as text."""
    if not shape:
        return [""]
    return ["[" + ",".join(map(str, place)) + "]" for place in product(*map(range, shape))]
