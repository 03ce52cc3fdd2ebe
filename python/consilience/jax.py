"""Sample a model that is written in JAX: a log-density of rows, compiled once, vectorised over
clients.

>>> import jax.numpy as jnp, numpy as np, consilience.jax
>>> def log_density(parameters, row):
...     x, y = row
...     return -0.5 * (y - parameters["slope"] * x - parameters["level"]) ** 2
>>> rng = np.random.default_rng(1)
>>> x = {"basel": rng.normal(size=40), "zurich": rng.normal(size=30)}
>>> data = {site: (x, 1.0 + 2.0 * x + rng.normal(size=len(x))) for site, x in x.items()}
>>> model = consilience.jax.Model(log_density, {"level": 0.0, "slope": 0.0}, data)
>>> result = consilience.sample(
...     model,
...     sampler="vr-fald*",
...     step=1e-3,
...     batch=8,
...     prior=10.0,
...     iterations=2000,
...     seed=1,
...     progress=False,
... )
>>> result.parameters, model.tree(result.draws.mean((0, 1)))["slope"].shape
(['level', 'slope'], ())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from ._model import Batch, Floats, Rows, lines_by_size, of_lines
from .errors import DataError

__all__ = ["Model"]


class Model:
    """A log-density of single rows as a model: the potential of a client is minus its sum over the
    client's rows.

    It is differentiated, vectorised over rows and clients, and compiled once for each size of
    minibatches. Gradients have 32 bits, as JAX has, or 64 where ``jax_enable_x64`` is set when the
    model is made (``dtype`` says which); chains have 64. Chains start at the given parameters.

    Args:
        log_density: of parameters and one row, up to a constant: the log-likelihood of the row,
            without the prior. It must be traceable by JAX.
        parameters: where chains start, as any tree of arrays that JAX knows.
        data: each client's rows, as any tree of arrays of which the first axis counts rows; all
            trees are alike.
        chunk: at most so many rows at a time where all rows of a client are wanted.
    """

    #: It gives differences itself, so as to say a common point of reference once.
    differences = True

    def __init__(
        self,
        log_density: Callable[[Any, Any], Any],
        parameters: Any,
        data: Mapping[str, Any],
        *,
        chunk: int = 512,
    ) -> None:
        import jax
        import jax.numpy as jnp
        from jax.flatten_util import ravel_pytree

        as_floats = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=float), parameters)
        flat, self._unravel = ravel_pytree(as_floats)
        #: The precision of gradients.
        self.dtype = np.dtype(flat.dtype)
        #: Where chains start.
        self.start: Floats = np.asarray(flat, dtype=np.float64)
        #: The parameters' names: the tree's keys, with the place in each array.
        self.parameters = _names(as_floats)
        #: How many rows each client has.
        self.rows = {site: _length(site, rows) for site, rows in data.items()}
        #: The relative error of a gradient.
        self.resolution = float(np.finfo(self.dtype).eps)
        self._first = np.cumsum([0, *self.rows.values()])
        self._chunk = min(chunk, max(self.rows.values(), default=1))
        # Integers stay what they are: labels, or places in a table.
        stacked = jax.tree.map(
            lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *data.values()
        )
        rows_of_all = jax.tree.map(jnp.asarray, stacked)

        def potential(point: Any, these: Any, weights: Any) -> Any:
            tree = self._unravel(point)
            each = jax.vmap(lambda row: log_density(tree, row))(
                jax.tree.map(lambda leaf: leaf[these], rows_of_all)
            )
            # A padded row counts nothing, even where it is infinite.
            return -jnp.sum(jnp.where(weights, each, 0.0))

        one = jax.eval_shape(
            log_density, as_floats, jax.tree.map(lambda leaf: leaf[0], rows_of_all)
        )
        if getattr(one, "shape", None) != ():
            raise DataError(
                f"the log-density of one row is {one}, which is no number\n  sum over what the "
                f"row has, and return one number"
            )
        gradient = jax.grad(potential)
        self._alone = jax.jit(gradient)
        self._stacked = jax.jit(jax.vmap(gradient))
        self._at_one_point = jax.jit(jax.vmap(gradient, in_axes=(None, 0, 0)))

    def gradients(self, batch: Batch) -> None:
        """Write sums of rows' gradients, or their differences, into ``batch.out``."""
        import jax

        # The precision is a thread's own, and chains have threads of theirs.
        with jax.enable_x64(self.dtype == np.float64):
            for lines, rows in lines_by_size(batch):
                clients = batch.clients[lines]
                told = self._sums(of_lines(batch.x, lines), clients, rows)
                if batch.z is not None:
                    told = told - self._sums(of_lines(batch.z, lines), clients, rows)
                batch.out[lines] = told

    def tree(self, draw: npt.ArrayLike) -> Any:
        """A draw as the tree of arrays that the log-density takes."""
        return self._unravel(np.asarray(draw, dtype=self.dtype))

    def _sums(self, points: Floats, clients: Rows, rows: Rows | None) -> Any:
        if rows is None:
            return self._over_all(points[0].astype(self.dtype), int(clients[0]))
        listed = rows + self._first[clients][:, None]
        counted = np.ones(listed.shape, dtype=bool)
        if len(points) < len(clients):
            return self._at_one_point(points[0].astype(self.dtype), listed, counted)
        return self._stacked(points.astype(self.dtype), listed, counted)

    def _over_all(self, point: npt.NDArray[Any], client: int) -> Any:
        """All rows of a client, in chunks of one size, so that one program serves all."""
        end = self._first[client + 1]
        sums: Any = 0.0
        for start in range(self._first[client], end, self._chunk):
            these = np.arange(start, start + self._chunk)
            sums = sums + self._alone(point, np.minimum(these, end - 1), these < end)
        return sums


def _length(site: str, rows: Any) -> int:
    import jax

    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else None for leaf in jax.tree.leaves(rows)}
    if len(lengths) != 1 or None in lengths:
        raise DataError(
            f"client {site!r} has arrays of unequal lengths\n  the first axis of every array "
            f"counts rows"
        )
    return int(lengths.pop() or 0)


def _names(tree: Any) -> list[str]:
    import jax

    names: list[str] = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "x"
        places = product(*map(range, leaf.shape)) if leaf.ndim else None
        names += (
            [name]
            if places is None
            else [f"{name}[{','.join(map(str, place))}]" for place in places]
        )
    return names
