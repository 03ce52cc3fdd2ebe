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
from ._tables import columns_of

if TYPE_CHECKING:
    import xarray

#: Beyond so many parameters they are one variable with a coordinate, as in a run directory.
MOST_VARIABLES = 256
LIBRARY = "consilience"


class Summary(Mapping[str, npt.NDArray[np.float64]]):
    """A table with one row for each parameter: ``mean``, ``sd``, ``lower``, ``upper`` (89% of the
    mass), ``rhat``, ``ess_bulk``, ``ess_tail``, ``mcse_mean``, ``mcse_sd``.
    """

    COLUMNS = (
        "mean",
        "sd",
        "lower",
        "upper",
        "rhat",
        "ess_bulk",
        "ess_tail",
        "mcse_mean",
        "mcse_sd",
    )

    def __init__(
        self,
        parameters: list[str],
        numbers: npt.NDArray[np.float64],
        warnings: Sequence[Diagnostic] = (),
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
        lines = [
            f"{'parameter':<{width}} {'mean':>8} {'sd':>7} {'5.5%':>8} {'94.5%':>8} {'R-hat':>6} "
            f"{'bulk':>7} {'tail':>7}"
        ]
        for name, mean, sd, lower, upper, rhat, bulk, tail in zip(
            self.parameters, *list(self.values())[:7]
        ):
            lines.append(
                f"{name:<{width}} {mean:>8.3f} {sd:>7.3f} {lower:>8.3f} {upper:>8.3f} "
                f"{rhat:>6.3f} {bulk:>7.0f} {tail:>7.0f}"
            )
        return "\n".join([*lines, *(f"WARNING: {warning}" for warning in self.warnings)])


class Prediction:
    """What a run says of new rows, averaged over its draws.

    ``mean``, ``lower`` and ``upper`` have one number for each row, or for softmax regression one
    for each row and class; the intervals hold 89%. Those of probabilities show how far the draws
    disagree; those of a number are of a new response, noise included.
    """

    def __init__(
        self,
        mean: npt.NDArray[np.float64],
        lower: npt.NDArray[np.float64],
        upper: npt.NDArray[np.float64],
        facts: str,
    ) -> None:
        told = json.loads(facts)
        #: ``"probability"``, ``"response"``, ``"class probabilities"``, ...: as the model says.
        self.predicts: str = told["predicts"]
        flat = self.predicts != "class probabilities"
        self.mean, self.lower, self.upper = (
            numbers[:, 0] if flat else numbers for numbers in (mean, lower, upper)
        )
        #: What is explained, such as ``"num > 0"``, where that is known.
        self.explained: str | None = told["explained"]
        #: The values of a response that has classes, in the order of the columns.
        self.classes: list[str] | None = told["classes"]
        #: What was missing and imputed, in sentences.
        self.notes: list[str] = told["notes"]
        #: How well the rows are predicted whose response is known: ``rows``,
        #: ``negative_log_likelihood``, ``accuracy``, ``brier``, ``root_mean_square``.
        self.scores: dict[str, Any] | None = told["scores"]

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        what = self.predicts if self.explained is None else f"{self.predicts} of {self.explained}"
        scored = (
            ""
            if self.scores is None
            else (
                f"; minus log-likelihood {self.scores['negative_log_likelihood']:.3f} a row of "
                f"{self.scores['rows']}"
            )
        )
        return "\n".join(
            [f"<consilience.Prediction {what}: {len(self)} rows{scored}>", *self.notes]
        )


class Effects(Mapping[str, npt.NDArray[np.float64]]):
    """The effects of one site's groups, on the scale of the linear predictor: draws by name, an
    array of chain and draw each. Together with the run's draws they are draws of the whole model.
    They are the site's own.
    """

    def __init__(
        self, site: str, names: list[str], groups: list[str], draws: npt.NDArray[np.float64]
    ) -> None:
        #: The site.
        self.site = site
        #: The effects: a group's name, and where it has two the same with the slope's column.
        self.names = names
        #: The groups, each once.
        self.groups = groups
        #: Chain, draw, effect.
        self.draws = draws

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The mean of each."""
        mean: npt.NDArray[np.float64] = self.draws.mean(axis=(0, 1))
        return mean

    @property
    def sd(self) -> npt.NDArray[np.float64]:
        """The standard deviation of each."""
        sd: npt.NDArray[np.float64] = self.draws.std(axis=(0, 1))
        return sd

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        if name not in self.names:
            raise KeyError(f"{name!r}: the effects are {', '.join(self.names)}")
        return self.draws[:, :, self.names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        lines = [f"<consilience.Effects of {len(self.groups)} groups of site {self.site!r}>"]
        for name, mean, sd in zip(self.names, self.mean, self.sd):
            lines.append(f"{name:<24} {mean:>9.4f} {sd:>8.4f}")
        return "\n".join(lines)


class Loo:
    """How well rows are predicted that were left out (PSIS-LOO), by sums of the sites. The names
    are those of ArviZ's ``ELPDData``; single rows stay where they are, so there is nothing
    pointwise.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        total = told["total"]
        #: Always ``"loo"``.
        self.kind = "loo"
        #: The sum of ``log p(y_i | all other rows)``: the larger, the better.
        self.elpd_loo: float = _number(total["elpd_loo"])
        #: Its standard error.
        self.se: float = _number(total["se"])
        #: The effective number of parameters.
        self.p_loo: float = _number(total["p_loo"])
        #: How many rows, or groups, there are.
        self.n_data_points: int = total["n_data_points"]
        #: How many draws there are.
        self.n_samples: int = told["n_samples"]
        #: The largest ``k`` that is good for so many draws.
        self.good_k: float = told["good_k"]
        #: How many have a ``k`` that is good, one that is not, and one above 1.
        self.counts: tuple[int, int, int] = tuple(total["counts"])
        #: What is left out: ``"rows"``, or ``"groups"`` with their effects.
        self.unit: str = told["unit"]
        #: Whether some ``k`` is not good, so that ``elpd_loo`` is not to be relied on.
        self.warning: bool = sum(self.counts[1:]) > 0
        #: Always ``"log"``.
        self.scale = "log"
        #: The same numbers by site.
        self.sites: dict[str, dict[str, Any]] = {name: sums for name, sums in told["sites"]}

    @property
    def elpd(self) -> float:
        """``elpd_loo``, as newer versions of ArviZ call it."""
        return self.elpd_loo

    @property
    def p(self) -> float:
        """``p_loo``, as newer versions of ArviZ call it."""
        return self.p_loo

    def __repr__(self) -> str:
        good, bad, worse = self.counts
        share = 100 / max(1, self.n_data_points)
        lines = [
            f"Computed from {self.n_samples} draws and {self.n_data_points} {self.unit} at "
            f"{len(self.sites)} sites.",
            "",
            f"{'':<9} {'Estimate':>9} {'SE':>8}",
            f"{'elpd_loo':<9} {self.elpd_loo:>9.2f} {self.se:>8.2f}",
            f"{'p_loo':<9} {self.p_loo:>9.2f} {'-':>8}",
            "",
            f"k up to {self.good_k:.2f} (good): {good} ({good * share:.1f}%); up to 1 (bad): "
            f"{bad} ({bad * share:.1f}%); above (very bad): {worse} ({worse * share:.1f}%)",
        ]
        if self.warning:
            lines.append("WARNING: with a k that is not good, elpd_loo is not to be relied on.")
        return "\n".join(lines)


def _number(told: float | None) -> float:
    """A number that JSON has none for is told as nothing."""
    return float("nan") if told is None else float(told)


class Result:
    """The draws of a run and everything beside them.

    >>> import consilience
    >>> result = consilience.heart(iterations=2000, progress=False)
    >>> result.digest == __import__("hashlib").sha256(result.draws.tobytes()).hexdigest()
    True
    >>> sorted(result.ledger["up"])
    ['control', 'gradient', 'header', 'parameter', 'potential', 'reference', 'survey']
    """

    def __init__(self, run: "_consilience.Run") -> None:
        self._run = run
        facts = json.loads(run.facts)
        #: The draws: chain, draw, parameter. The memory is the engine's own, handed over; it cannot
        #: be written to.
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
        #: How far the draws are off, by forecast: ``exact`` where they are not, ``mean`` in
        #: posterior standard deviations, ``sd`` as a ratio; with ``bias="halve"`` also
        #: ``measured``, with means and standard deviations without it. None where it is not known.
        self.bias: dict[str, Any] | None = facts["bias"]
        #: What was tried before sampling and what each candidate would have cost; None where the
        #: sampler is not one that accepts or rejects.
        self.choice: dict[str, Any] | None = facts["choice"]
        #: Responses that the model would draw beside those that there are: ``statistics``, ``bins``
        #: and ``sites``, each a list of ``name``, ``observed``, ``replicated``, ``lower``,
        #: ``upper`` and ``p``; ``fit`` has Bayesian R^2 or AUC. None where nothing was drawn anew.
        self.check: dict[str, Any] | None = facts["check"]
        #: How many exchanges came before sampling, and how many all chains had.
        self.exchanges: dict[str, int] = dict(
            zip(("before_sampling", "sampling"), facts["exchanges"])
        )
        #: How long sampling took.
        self.seconds: float = facts["seconds"]
        #: The config as it was resolved, in TOML: the command runs it again, where its rows are in
        #: files.
        self.config: str = facts["config"]
        self._facts = facts
        #: The tables that were sampled from, where they were given from memory.
        self._columns: list[Any] = []

    @property
    def ledger(self) -> dict[str, Any]:
        """What was sent, in bits: ``up`` and ``down`` by kind, the same ``uncompressed``, what was
        sent ``before_sampling``; ``rows_evaluated`` counts gradients of single rows.
        """

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
        """What stands beside every draw: ``lp``, ``iteration``, ``bits_up``, ``bits_down``,
        ``gradients``, ``participants``, each by chain and draw.
        """
        return dict(self._run.statistics)

    def summary(self) -> Summary:
        """Mean, standard deviation, interval, R-hat and effective sample sizes of every parameter:
        the
        digits that the command prints, and the run's warnings below them.
        """
        return Summary(self.parameters, _consilience.summarise(self.draws), self.warnings)

    @property
    def posterior(self) -> "xarray.Dataset":
        """The draws as an xarray Dataset with the dimensions chain and draw, one variable for each
        parameter (beyond 256, one in all); ArviZ takes it.
        """
        import xarray

        chains, draws, _ = self.draws.shape
        coordinates: dict[str, Any] = {"chain": np.arange(chains), "draw": np.arange(draws)}
        if len(self.parameters) > MOST_VARIABLES:
            coordinates["parameter"] = self._facts["variables"]
            variables: dict[str, Any] = {"parameters": (("chain", "draw", "parameter"), self.draws)}
        else:
            variables = {
                name: (("chain", "draw"), self.draws[:, :, k])
                for k, name in enumerate(self._facts["variables"])
            }
        return xarray.Dataset(variables, coords=coordinates, attrs=self._attributes())

    def to_arviz(self) -> Any:
        """What the installed ArviZ works on: a DataTree (1.x) or an InferenceData (0.x), with the
        groups ``posterior`` and ``sample_stats``.
        """
        import arviz
        import xarray

        posterior = self.posterior
        stats = {name: (("chain", "draw"), values) for name, values in self.sample_stats.items()}
        beside = xarray.Dataset(
            stats,
            coords={key: posterior.coords[key] for key in ("chain", "draw")},
            attrs=posterior.attrs,
        )
        if arviz.__version__.startswith("0."):
            return arviz.InferenceData(posterior=posterior, sample_stats=beside)
        return xarray.DataTree.from_dict({"posterior": posterior, "sample_stats": beside})

    def predict(
        self,
        table: Any,
        site: str | None = None,
        clients: Mapping[str, Any] | None = None,
    ) -> Prediction:
        """Predict raw rows: a table with the columns, words and gaps of those that were sampled
        from,
        in any form that :func:`consilience.sample` takes.

        >>> import consilience
        >>> sites = {
        ...     "a": {"dose": [1.0, 2.0, 4.0], "sex": ["f", "m", "m"], "ill": [0, 1, 1]},
        ...     "b": {"dose": [3.0, 2.5], "sex": ["m", "f"], "ill": [1, 0]},
        ... }
        >>> result = consilience.sample(
        ...     "ill == 1 ~ dose + sex", sites, seed=3, iterations=1000, progress=False
        ... )
        >>> found = result.predict({"dose": [1.0, 4.0, None], "sex": ["f", "m", "m"]})
        >>> found.mean.shape, bool(found.mean[0] < found.mean[1]), found.notes
        ((3,), True, ['dose: 1 of 3 values are missing, imputed by the federated mean.'])

        Args:
            table: the rows. The response may be left out; where it is there, the predictions are
                scored.
            site: the site of all rows, where sites have effects and no column says it. With effects
                of groups, a site that took part: rows are predicted by the effects of its own
                groups, which are drawn by its rows; a row of another group is one of a group that
                nobody has seen.
            clients: the tables that were sampled from, as for :meth:`loo`.

        Raises:
            DataError: a column is missing, a level is unknown, a value is none; ``Error``: the
                model says nothing of rows.
        """
        columns = self._clients(clients)
        return Prediction(*self._run.predict(columns_of(table, "the rows"), site, columns))

    def effects(self, site: str, clients: Mapping[str, Any] | None = None) -> Effects:
        """Draw the effects of a site's groups from their law given each draw, by the site's rows.

        >>> import consilience
        >>> x = [-1.0, 0.5, 1.0, -0.5, 2.0, 0.0]
        >>> sites = {
        ...     "a": {"x": x, "ward": list("uuuvvv"), "ill": [0, 1, 1, 0, 1, 0]},
        ...     "b": {"x": x, "ward": list("uuuvvv"), "ill": [0, 0, 1, 1, 1, 1]},
        ... }
        >>> formula = "ill == 1 ~ x + (1 | ward)"
        >>> result = consilience.sample(formula, sites, seed=3, progress=False)
        >>> own = result.effects("a")
        >>> own.groups, own["u"].shape == result.draws.shape[:2]
        (['u', 'v'], True)

        Args:
            site: the site. Nobody else's rows are needed.
            clients: the tables that were sampled from, as for :meth:`loo`; that of the site is
                enough.

        Raises:
            DataError: the rows are not there any more, or are others; the model has no effects of
                groups; the run has a privacy budget.
        """
        return Effects(site, *self._run.effects(site, self._clients(clients)))

    def loo(self, clients: Mapping[str, Any] | None = None) -> Loo:
        """Cross-validate the model: what it says of each row without having seen it, by
        Pareto-smoothed importance sampling at the sites.

        >>> import consilience
        >>> sites = {
        ...     "a": {"dose": [1.0, 2.0, 4.0], "ill": [0.0, 1.0, 1.0]},
        ...     "b": {"dose": [3.0, 2.5], "ill": [0.0, 1.0]},
        ... }
        >>> result = consilience.sample("ill == 1 ~ dose", sites, seed=3, progress=False)
        >>> found = result.loo()
        >>> found.n_data_points, sum(found.counts), list(found.sites)
        (5, 5, ['a', 'b'])

        Args:
            clients: the tables that were sampled from, for a result that was loaded or unpickled
                and whose rows are in no files.

        Raises:
            DataError: the rows are not there any more, or have no density of their own; the run
                has a privacy budget.
        """
        return Loo(json.loads(self._run.loo(self._clients(clients))))

    def _clients(self, clients: Mapping[str, Any] | None) -> list[Any]:
        """The tables that were sampled from, as they are given now or were then."""
        if clients is None:
            return self._columns
        return [
            (str(name), columns_of(table, f"client {name!r}")) for name, table in clients.items()
        ]

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a run directory, report included. ``consilience summary FOLDER`` shows it,
        ``consilience predict FOLDER`` predicts from it, :func:`consilience.load` reads it,
        ``az.from_zarr(FOLDER / "draws.zarr")`` opens its draws. Nothing is overwritten. With
        effects of groups, and rows that are at hand, each site has the draws of its own effects in
        ``sites/NAME/effects.csv``.
        """
        self._run.save(os.fspath(folder), self._clients(None))
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

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), *self._run.parts())

    def __copy__(self) -> "Result":
        same = type(self)(self._run)  # which nobody can change
        same._columns = self._columns
        return same

    def __deepcopy__(self, memo: dict[int, Any]) -> "Result":
        return self.__copy__()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        return self._run is other._run or (self.digest, self._run.facts) == (
            other.digest,
            other._run.facts,
        )

    def __hash__(self) -> int:
        return hash((self.digest, self._run.facts))

    def __repr__(self) -> str:
        chains, draws, _ = self.draws.shape
        head = (
            f"{self.sampler}: {draws} draws of each of {chains} chains, {len(self.parameters)} "
            f"parameters, {len(self.sites)} sites"
        )
        sent = f"{self.bits['up'] / 8e3:.1f} kB up, {self.bits['down'] / 8e3:.1f} kB down"
        return "\n".join(
            [
                f"<consilience.Result {head}; {sent}>",
                *(f"WARNING: {warning}" for warning in self.warnings),
            ]
        )


class ModelComparison:
    """How well two models predict rows that were left out: :class:`Loo` of each, and of the
    difference, which is taken row by row at the sites, so that its error is that of the
    difference.
    """

    def __init__(self, a: Loo, b: Loo, difference: Loo) -> None:
        #: The first.
        self.a = a
        #: The second.
        self.b = b
        #: The first less the second: above 0 where the first predicts better.
        self.difference = difference

    def __repr__(self) -> str:
        lines = [f"{'':<12} {'elpd_loo':>9} {'SE':>8}"]
        for name, of in (("a", self.a), ("b", self.b), ("a - b", self.difference)):
            lines.append(f"{name:<12} {of.elpd_loo:>9.2f} {of.se:>8.2f}")
        return "\n".join(lines)


def compare_models(
    a: Result,
    b: Result,
    clients: Mapping[str, Any] | None = None,
) -> ModelComparison:
    """Compare two models of the same rows by how well they predict rows that were left out: the
    difference of ``elpd_loo`` with its standard error. :func:`compare` holds samplers against each
    other instead.

    >>> import consilience
    >>> dose, sex = [1.0, 2.0, 4.0, 3.0, 0.5, 2.5], ["f", "m", "m", "f", "f", "m"]
    >>> sites = {
    ...     "a": {"dose": dose, "sex": sex, "ill": [0, 0, 1, 1, 0, 1]},
    ...     "b": {"dose": dose, "sex": sex, "ill": [0, 1, 1, 0, 0, 1]},
    ... }
    >>> both = [
    ...     consilience.sample(f"ill == 1 ~ {terms}", sites, seed=3, progress=False)
    ...     for terms in ("dose", "sex")
    ... ]
    >>> found = consilience.compare_models(*both)
    >>> round(found.difference.elpd_loo - found.a.elpd_loo + found.b.elpd_loo, 9)
    0.0

    Args:
        a: a run.
        b: another, of the same sites and the same responses.
        clients: the tables that both were sampled from, as for :meth:`Result.loo`.

    Raises:
        DataError: the rows are not there any more, or those of one run are not those of the other.
    """
    columns = (a._clients(clients), b._clients(clients))
    told = json.loads(_consilience.compare_models((a._run, b._run), columns))
    return ModelComparison(*(Loo(of) for of in told))


def load(folder: str | os.PathLike[str]) -> Result:
    """Read a run directory: one that :meth:`Result.save` wrote, or ``consilience run --out
    FOLDER``,
    or the main job.

    >>> import consilience, tempfile
    >>> result = consilience.heart(iterations=2000, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     consilience.load(result.save(f"{folder}/run")) == result
    True
    """
    return Result(_consilience.load(os.fspath(folder)))


def _restored(kind: type[Result], *parts: Any) -> Result:
    """The result of a pickle."""
    return kind(_consilience.unpack(*parts))
