"""Bring a model of one's own: gradients on flat vectors, of all clients that ask, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .errors import ConfigError, DataError

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

ALL_ROWS, UNEQUAL = -1, -2


class Batch:
    """What the clients want to know in one iteration: one line for each point.

    The arrays are used again for the next call: copy what is to be kept. Read ``x``, ``z``,
    ``clients`` and ``rows``; write into ``out``, which holds zeros. Where all clients are at one
    point, as where a server sends everybody the same, the lines of ``x`` are the same memory, and
    so for ``z``.

    A client that compares with a reference point has two lines, with the same rows; the lines of
    reference points come last. A model that says ``differences=True`` is shown ``z`` instead, where
    all clients compare.
    """

    __slots__ = (
        "sites",
        "clients",
        "x",
        "z",
        "rows",
        "out",
        "_gradients",
        "_points",
        "_sums",
        "_clients",
        "_counts",
        "_rows",
        "_shown",
    )

    #: The names of all clients, whether they ask or not.
    sites: tuple[str, ...]
    #: Which client each line belongs to, counted from 0 in the order of ``sites``.
    clients: Rows
    #: The points, one a line.
    x: Floats
    #: The points of reference, one a line: then the gradient there is to be subtracted, over the
    #: same rows. ``None`` where gradients alone are wanted.
    z: Floats | None
    #: Which rows are summed over, ascending: ``None`` for all rows of every client; an array with
    #: one line for each point, where minibatches are equally large; else a list with an array, or
    #: ``slice(None)`` for all, for each point.
    rows: Rows | list[Rows | slice] | None
    #: Where the sums of the rows' gradients go, one a line.
    out: Floats

    def __init__(
        self,
        sites: Sequence[str],
        dimension: int,
        gradients: Callable[[Batch], npt.ArrayLike | None],
    ) -> None:
        most = 2 * len(sites)
        self.sites = tuple(sites)
        self._gradients = gradients
        # Memory that is never written to is never really taken.
        self._points = np.zeros((most, dimension))
        self._sums = np.zeros((most, dimension))
        self._clients = np.zeros(most, dtype=np.int64)
        self._counts = np.zeros(most, dtype=np.int64)
        self._rows = np.zeros(0, dtype=np.int64)
        self._shown: tuple[int, bool, int, bool, bool] | None = None

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self.clients)

    def __iter__(self) -> Iterator[tuple[str, Floats, Rows | slice, Floats]]:
        """Line by line: the client's name, its point, its rows (an array or a slice, either of
        which picks rows of an array), and where the sum goes. For models that give gradients.
        """
        for k, client in enumerate(self.clients.tolist()):
            yield (
                self.sites[client],
                self.x[k],
                slice(None) if self.rows is None else self.rows[k],
                self.out[k],
            )

    def _answer(
        self, count: int, paired: bool, size: int, x_once: bool = False, z_once: bool = False
    ) -> None:
        """Show the first lines, and call the model."""
        if self._shown != (count, paired, size, x_once, z_once) or size == UNEQUAL:
            self._show(count, paired, size, x_once, z_once)
        self.out.fill(0.0)
        returned = self._gradients(self)
        if returned is not None and returned is not self.out:
            answer = np.asarray(returned)
            if answer.shape != self.out.shape:
                raise DataError(
                    f"the model returned an array of shape {answer.shape}, where {self.out.shape} "
                    f"is expected\n  return one gradient a line of batch.x, or write into batch.out"
                )
            self.out[...] = answer

    def _show(self, count: int, paired: bool, size: int, x_once: bool, z_once: bool) -> None:
        self.clients = self._clients[:count]
        self.x = self._lines(0, count, x_once)
        self.z = self._lines(count, count, z_once) if paired else None
        self.out = self._sums[:count]
        if size == ALL_ROWS:
            self.rows = None
        elif size == UNEQUAL:
            self.rows = self._unequal(count)
        else:
            self.rows = self._rows[: count * size].reshape(count, size)
        self._shown = (count, paired, size, x_once, z_once)

    def _lines(self, start: int, count: int, once: bool) -> Floats:
        """Lines of points; the first of them over and over where it is all of them."""
        lines = self._points[start : start + count]
        return (
            np.lib.stride_tricks.as_strided(lines, lines.shape, (0, lines.strides[1]))
            if once
            else lines
        )

    def _unequal(self, count: int) -> list[Rows | slice]:
        rows: list[Rows | slice] = []
        start = 0
        for size in self._counts[:count].tolist():
            rows.append(slice(None) if size == ALL_ROWS else self._rows[start : start + size])
            start += max(size, 0)
        return rows

    def _list(self, length: int) -> Rows:
        """A longer list of rows."""
        self._rows = np.zeros(length, dtype=np.int64)
        self._shown = None
        return self._rows


@runtime_checkable
class AnyModel(Protocol):
    """What :func:`consilience.sample` wants of a model. :class:`Model` is one; an object of one's
    own may say more by its attributes: ``differences``, ``concurrent``, ``resolution``, ``start``,
    ``name``.
    """

    @property
    def parameters(self) -> int | Sequence[str]:
        """How many parameters there are, or their names."""

    @property
    def rows(self) -> Mapping[str, int]:
        """How many rows each client has, by its name."""

    def gradients(self, batch: Batch, /) -> npt.ArrayLike | None:
        """Sums of rows' gradients of the potential (minus the log-likelihood, without the prior),
        written into ``batch.out`` or returned.
        """


class Model:
    """A model of one's own: a function that gives gradients of the potential, which is minus the
    log-likelihood. The prior is not its business.

    >>> import numpy as np, consilience
    >>> data = {"basel": np.array([1.0, 2.0, 3.0]), "zurich": np.array([5.0, 5.0])}
    >>> def gradients(batch):
    ...     for site, x, rows, out in batch:
    ...         out += (x - data[site][rows, None]).sum(0)
    >>> model = consilience.Model(["mean"], {site: len(y) for site, y in data.items()}, gradients)
    >>> result = consilience.sample(
    ...     model, sampler="lmc", step=0.1, prior=100.0, seed=1, progress=False
    ... )
    >>> result.parameters, bool(abs(result.draws.mean() - 3.2) < 0.1)
    (['mean'], True)

    Args:
        parameters: the parameters' names, or how many there are.
        rows: how many rows each client has, by its name.
        gradients: called with a :class:`Batch` once an iteration.
        differences: it gives differences of gradients itself where ``batch.z`` is there. Otherwise
            they are made of gradients at both points, in the same call.
        concurrent: it may be called on several threads at once, so that chains run side by side.
            Otherwise they run one after the other.
        resolution: the relative error of a gradient; some 1e-7 where it is computed with 32 bits.
            Surveys of the curvature take larger steps then.
        start: where chains start, if :func:`consilience.sample` does not say it.
        name: what it is called; over a network all sites must bring a model of the same name.
    """

    def __init__(
        self,
        parameters: int | Sequence[str],
        rows: Mapping[str, int],
        gradients: Callable[[Batch], npt.ArrayLike | None],
        *,
        differences: bool = False,
        concurrent: bool = False,
        resolution: float = float(np.finfo(np.float64).eps),
        start: npt.ArrayLike | None = None,
        name: str | None = None,
    ) -> None:
        self.parameters = parameters
        self.rows = rows
        self.gradients = gradients
        self.differences = differences
        self.concurrent = concurrent
        self.resolution = resolution
        self.start = start
        self.name = name


class Lines(NamedTuple):
    """Lines of a batch that are about equally many rows."""

    #: Which lines.
    lines: slice | list[int]
    #: Their rows, one line each; ``None``: all rows of the one client.
    rows: Rows | None


def lines_by_size(batch: Batch) -> list[Lines]:
    """The lines of a batch in groups that can be stacked: by the size of their minibatches; those
    about all rows each alone, since clients have unequally many.
    """
    if isinstance(batch.rows, np.ndarray):
        return [Lines(slice(0, len(batch)), batch.rows)]
    alone: list[Lines] = []
    sizes: dict[int, tuple[list[int], list[Rows]]] = {}
    for k, (_, _, rows, _) in enumerate(batch):
        if isinstance(rows, slice):
            alone.append(Lines([k], None))
        else:
            lines, listed = sizes.setdefault(len(rows), ([], []))
            lines.append(k)
            listed.append(rows)
    return alone + [Lines(lines, np.stack(listed)) for lines, listed in sizes.values()]


def of_lines(points: Floats, lines: slice | list[int]) -> Floats:
    """Some of the points; a single line where all are the same."""
    return points[:1] if len(points) > 1 and points.strides[0] == 0 else points[lines]


class Brought(NamedTuple):
    """A model as it crosses the border."""

    parameters: list[str]
    sites: list[str]
    rows: list[int]
    start: list[float] | None
    differences: bool
    concurrent: bool
    resolution: float
    room: Callable[[], Batch]
    name: str | None


def bring(model: Any, clients: Any, parameters: Any, start: Any) -> Brought:
    """A model of one's own, checked. A bare function has its clients' numbers of rows and its
    parameters beside it.
    """
    if not isinstance(model, AnyModel):
        if not isinstance(clients, Mapping) or parameters is None:
            raise ConfigError(
                "a function is no model yet\n  say how many rows and parameters there are: "
                'sample(f, {"basel": 80}, parameters=3), or give a consilience.Model'
            )
        model, clients, parameters = (
            Model(parameters, {site: _count(rows) for site, rows in clients.items()}, model),
            None,
            None,
        )
    if clients is not None or parameters is not None:
        raise ConfigError(
            "the model brings its clients and parameters\n  leave out `clients` and `parameters`"
        )
    names = _names(model.parameters)
    sites = [str(site) for site in model.rows]
    if not sites:
        raise DataError(
            'the model has no clients\n  say how many rows each has: rows={"basel": 80}'
        )
    for site, rows in model.rows.items():
        if rows < 1:
            raise DataError(f"client {site!r} has {rows} rows\n  leave it out, or give it rows")
    given = start if start is not None else getattr(model, "start", None)
    room, d = model.gradients, len(names)
    return Brought(
        names,
        sites,
        [int(rows) for rows in model.rows.values()],
        None if given is None else np.asarray(given, dtype=np.float64).ravel().tolist(),
        bool(getattr(model, "differences", False)),
        bool(getattr(model, "concurrent", False)),
        float(getattr(model, "resolution", np.finfo(np.float64).eps)),
        lambda: Batch(sites, d, room),
        None if (name := getattr(model, "name", None)) is None else str(name),
    )


def _count(rows: Any) -> int:
    return rows if isinstance(rows, int) else len(rows)


def _names(parameters: int | Sequence[str]) -> list[str]:
    names = (
        [f"x{k + 1}" for k in range(parameters)]
        if isinstance(parameters, int)
        else [str(name) for name in parameters]
    )
    if not names:
        raise DataError("the model has no parameters\n  name them, or say how many there are")
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(f"two parameters are called {twice!r}\n  give each a name of its own")
    return names
