"""Keep the arrays of a calculation that is done over and over, so that nothing is allocated and a
GPU replays it as one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ._model import Floats, Rows

#: Runs before a GPU's graph is made of a program: the libraries prepare themselves in the first
#: ones, and what is done once is not worth a graph.
_RUNS_BEFORE_GRAPH = 2


class Program:
    """Gradients for so many lines and rows, at one point or as differences between two.

    Args:
        rows: the inputs and the targets of all rows.
        shape: how many lines there are, and how many rows each is about.
        points: how many lines each point has: as many as there are, or one for all of them.
        like: an array of the kind that gradients are.
        operations: what is to be done with a program's arrays, in turn: asked for once.
    """

    def __init__(
        self,
        rows: Sequence[torch.Tensor],
        shape: tuple[int, int],
        points: Sequence[int],
        like: torch.Tensor,
        operations: Callable[[Program], Sequence[Callable[[], Any]]],
    ) -> None:
        import torch

        self._all = rows
        self._on_gpu = like.device.type == "cuda"
        self.points = [like.new_zeros((lines, len(like))) for lines in points]
        self.inputs, self.targets = (
            tensor.new_zeros((*shape, *tensor.shape[1:])) for tensor in rows
        )
        self.out = like.new_zeros((shape[0], len(like)))
        self._listed = torch.zeros(shape, dtype=torch.int64, device=like.device)
        self._told_points, self._told_listed, self._told_out = (
            [self._beside(point) for point in self.points],
            self._beside(self._listed),
            self._beside(self.out),
        )
        self._operations = operations(self)
        self._runs = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def gradients(self, points: Sequence[Floats], listed: Rows, out: torch.Tensor) -> None:
        """Write the gradients at these points, over these of all rows, into ``out``."""
        import torch

        with torch.no_grad():
            for place, point in zip(self._told_points, points):
                place.copy_(torch.from_numpy(point))
            self._told_listed.copy_(torch.from_numpy(listed))
            self._run()
            out.copy_(self._told_out)

    def _beside(self, tensor: torch.Tensor) -> torch.Tensor:
        """The array that we read and write for one of the GPU's: in pages that stay where they are,
        so that a graph can copy them.
        """
        import torch

        return (
            torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            if self._on_gpu
            else tensor
        )

    def _run(self) -> None:
        import torch

        if not self._on_gpu:
            self._once()
            return
        self._runs += 1
        # The same numbers every time, and 32 bits where 32 are asked for: convolutions would have
        # fewer.
        exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
        with torch.cuda.device(self.out.device), exact:
            if self._graph is None and self._runs > _RUNS_BEFORE_GRAPH:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph):
                    self._once()
            if self._graph is None:
                self._once()
            else:
                self._graph.replay()
            torch.cuda.current_stream().synchronize()

    def _once(self) -> None:
        import torch

        if self._on_gpu:
            for place, told in zip(
                [*self.points, self._listed], [*self._told_points, self._told_listed]
            ):
                place.copy_(told, non_blocking=True)
        for rows, chosen in zip(self._all, (self.inputs, self.targets)):
            torch.index_select(rows, 0, self._listed.flatten(), out=chosen.flatten(0, 1))
        for operation in self._operations:
            operation()
        if self._on_gpu:
            self._told_out.copy_(self.out, non_blocking=True)
