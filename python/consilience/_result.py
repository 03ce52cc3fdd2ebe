"""Hold what a run leaves behind."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _consilience
from ._diagnostics import Diagnostic, diagnostics

if TYPE_CHECKING:
    import xarray

#: Beyond so many parameters they are one variable with a coordinate, as in a run directory.
MOST_VARIABLES = 256
LIBRARY = "consilience"


class Summary(Mapping[str, npt.NDArray[np.float64]]):
    """A table with one row for each parameter: ``mean``, ``sd``, ``lower``, ``upper`` (89% of the mass), ``rhat``, ``ess_bulk``, ``ess_tail``, ``mcse_mean``, ``mcse_sd``."""

    COLUMNS = ("mean", "sd", "lower", "upper", "rhat", "ess_bulk", "ess_tail", "mcse_mean", "mcse_sd")

    def __init__(
        self, parameters: list[str], numbers: npt.NDArray[np.float64], warnings: Sequence[Diagnostic] = ()
    ) -> None:
        self.parameters = parameters
        #: What the reader should know first; it is printed below the table.
        self.warnings: list[Diagnostic] = list(warnings)
        self._columns: dict[str, npt.NDArray[np.float64]] = dict(zip(self.COLUMNS, numbers.T))

    def __getitem__(self, column: str) -> npt.NDArray[np.float64]:
        return self._columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def to_pandas(self) -> Any:
        """The same as a data frame, where pandas is installed."""
        import pandas

        return pandas.DataFrame(self._columns, index=self.parameters)

    def __repr__(self) -> str:
        width = max([9, *map(len, self.parameters)])
        lines = [f"{'parameter':<{width}} {'mean':>8} {'sd':>7} {'5.5%':>8} {'94.5%':>8} {'R-hat':>6} {'bulk':>7} {'tail':>7}"]
        for name, mean, sd, lower, upper, rhat, bulk, tail in zip(self.parameters, *list(self.values())[:7]):
            lines.append(f"{name:<{width}} {mean:>8.3f} {sd:>7.3f} {lower:>8.3f} {upper:>8.3f} {rhat:>6.3f} {bulk:>7.0f} {tail:>7.0f}")
        return "\n".join([*lines, *(f"WARNING: {warning}" for warning in self.warnings)])


class Result:
    """The draws of a run and everything beside them.

    >>> import consilience
    >>> result = consilience.heart(iterations=2000, progress=False)
    >>> result.digest == __import__("hashlib").sha256(result.draws.tobytes()).hexdigest()
    True
    >>> sorted(result.ledger["up"])
    ['control', 'gradient', 'header', 'parameter', 'reference', 'survey']
    """

    def __init__(self, run: "_consilience.Run") -> None:
        self._run = run
        facts = json.loads(run.facts)
        #: The draws: chain, draw, parameter. The memory is the engine's own, handed over; it cannot be written to.
        self.draws: npt.NDArray[np.float64] = run.draws
        #: The parameters' names.
        self.parameters: list[str] = facts["parameters"]
        #: SHA-256 of the draws' bytes: the same wherever the same chains were run.
        self.digest: str = run.digest
        #: What the reader should know first: texts with a ``code``, a ``message`` and a ``remedy``.
        self.warnings: list[Diagnostic] = diagnostics(facts["warnings"])
        #: The sites: ``name``, ``rows``, ``bits_up``, ``bits_down``.
        self.sites: list[dict[str, Any]] = facts["sites"]
        #: How the data was encoded, in sentences.
        self.notes: list[str] = facts["notes"]
        #: Whether Ctrl-C stopped it before its end.
        self.interrupted: bool = facts["interrupted"]
        #: The sampler's name.
        self.sampler: str = facts["sampler"]
        #: The first (and largest) step.
        self.step: float = facts["step"]
        #: The master seed.
        self.seed: int = facts["seed"]
        #: How long sampling took.
        self.seconds: float = facts["seconds"]
        #: The config as it was resolved, in TOML: the command runs it again, where its rows are in files.
        self.config: str = facts["config"]
        self._facts = facts

    @property
    def ledger(self) -> dict[str, Any]:
        """What was sent, in bits: ``up`` and ``down`` by kind, the same ``uncompressed``, what was sent ``before_sampling``; ``rows_evaluated`` counts gradients of single rows."""

        def pair(key: str) -> dict[str, int]:
            return dict(zip(("up", "down"), self._facts[key]))

        return {
            "up": self._facts["up"],
            "down": self._facts["down"],
            "uncompressed": pair("uncompressed"),
            "before_sampling": pair("before_sampling"),
            "rows_evaluated": self._facts["rows_evaluated"],
        }

    @property
    def bits(self) -> dict[str, int]:
        """All bits that were sent while sampling, up and down."""
        return {direction: sum(self._facts[direction].values()) for direction in ("up", "down")}

    @property
    def sample_stats(self) -> dict[str, npt.NDArray[np.float64]]:
        """What stands beside every draw: ``lp``, ``iteration``, ``bits_up``, ``bits_down``, ``gradients``, ``participants``, each by chain and draw."""
        return dict(self._run.statistics)

    def summary(self) -> Summary:
        """Mean, standard deviation, interval, R-hat and effective sample sizes of every parameter: the
        digits that the command prints, and the run's warnings below them."""
        return Summary(self.parameters, _consilience.summarise(self.draws), self.warnings)

    @property
    def posterior(self) -> "xarray.Dataset":
        """The draws as an xarray Dataset with the dimensions chain and draw, one variable for each parameter (beyond 256, one in all); ArviZ takes it."""
        import xarray

        chains, draws, _ = self.draws.shape
        coordinates: dict[str, Any] = {"chain": np.arange(chains), "draw": np.arange(draws)}
        if len(self.parameters) > MOST_VARIABLES:
            coordinates["parameter"] = self._facts["variables"]
            variables: dict[str, Any] = {"parameters": (("chain", "draw", "parameter"), self.draws)}
        else:
            variables = {name: (("chain", "draw"), self.draws[:, :, k]) for k, name in enumerate(self._facts["variables"])}
        return xarray.Dataset(variables, coords=coordinates, attrs=self._attributes())

    def to_arviz(self) -> Any:
        """What the installed ArviZ works on: a DataTree (1.x) or an InferenceData (0.x), with the groups ``posterior`` and ``sample_stats``."""
        import arviz
        import xarray

        posterior = self.posterior
        stats = {name: (("chain", "draw"), values) for name, values in self.sample_stats.items()}
        beside = xarray.Dataset(stats, coords={key: posterior.coords[key] for key in ("chain", "draw")}, attrs=posterior.attrs)
        if arviz.__version__.startswith("0."):
            return arviz.InferenceData(posterior=posterior, sample_stats=beside)
        return xarray.DataTree.from_dict({"posterior": posterior, "sample_stats": beside})

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a run directory, report included. ``consilience summary FOLDER`` shows it, ``az.from_zarr(FOLDER / "draws.zarr")`` opens it. Nothing is overwritten."""
        self._run.save(os.fspath(folder))
        return Path(folder)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report: one HTML page that loads nothing."""
        Path(path).write_text(self._run.html(), encoding="utf-8")
        return Path(path)

    def _attributes(self) -> dict[str, Any]:
        return {
            "inference_library": LIBRARY,
            "inference_library_version": self._facts["version"],
            "created_at": self._facts["created"],
            "sampling_time": self.seconds,
            "tuning_steps": self._facts["burn_in"],
            "sampler": self.sampler,
            "digest": self.digest,
        }

    def __repr__(self) -> str:
        chains, draws, _ = self.draws.shape
        head = f"{self.sampler}: {draws} draws of each of {chains} chains, {len(self.parameters)} parameters, {len(self.sites)} sites"
        sent = f"{self.bits['up'] / 8e3:.1f} kB up, {self.bits['down'] / 8e3:.1f} kB down"
        return "\n".join([f"<consilience.Result {head}; {sent}>", *(f"WARNING: {warning}" for warning in self.warnings)])
