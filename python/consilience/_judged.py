"""Hold samplers against the truth, against each other and against the papers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _consilience
from ._progress import shower
from ._sample import Columns, Config, state

Floats = npt.NDArray[np.float64]


class Law:
    """A Gaussian law: ``mean``, ``covariance`` and ``sd``."""

    def __init__(self, numbers: Mapping[str, Any]) -> None:
        self.mean: Floats = np.array(numbers["mean"], dtype=np.float64)
        self.covariance: Floats = np.array(numbers["covariance"], dtype=np.float64)

    @property
    def sd(self) -> Floats:
        """The standard deviations."""
        return np.sqrt(np.diagonal(self.covariance))


class Exact:
    """What a sampler's draws have as their law, without sampling: ``posterior`` beside
    ``stationary``.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.sampler: str = facts["sampler"]
        self.step: float = facts["step"]
        self.parameters: list[str] = facts["parameters"]
        self.posterior = Law(facts["posterior"])
        self.stationary = Law(facts["stationary"])


def exact(
    model: str | None = None,
    clients: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    config: Config | None = None,
    **settings: Any,
) -> Exact:
    """The exact law of a sampler's draws on a Gaussian target, bias included. Takes what
    :func:`consilience.sample` takes.

    >>> import consilience
    >>> sites = {"a": {"mean": [1.0], "precision": [[2.0]]}}
    >>> law = consilience.exact("gaussian", sites, step=0.1)
    >>> both = law.posterior.covariance[0, 0], law.stationary.covariance[0, 0]
    >>> [round(float(variance), 12) for variance in both]  # 1/2, and 1/2 / (1 - 0.1 * 2 / 2)
    [0.5, 0.555555555556]
    """
    stated, columns = state(model, clients, config, settings)
    return Exact(json.loads(_consilience.exact(stated, columns)))


class Comparison:
    """Several samplers on one target. ``runs`` has a dictionary for each: ``mean_error_sd``,
    ``sd_error``, ``w2``, ``ess`` (bulk or tail, whichever is less), ``bits_up``, ``bits_down``
    (surveys and pilots included; ``survey_bits`` are these), ``exchanges`` (``before_sampling``
    and ``sampling``), ``rows_evaluated``, ``seconds``.
    """

    def __init__(self, numbers: Mapping[str, Any], page: str) -> None:
        #: What errors are against, in words.
        self.reference: str = numbers["reference"]
        self.runs: list[dict[str, Any]] = numbers["runs"]
        self._page = page

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the page: errors against bytes, gradients and seconds."""
        Path(path).write_text(self._page, encoding="utf-8")
        return Path(path)

    def __repr__(self) -> str:
        lines = [
            f"{'config':<24} {'sampler':<12} {'mean/sd':>8} {'sd':>7} {'W2':>9} {'ESS':>8} "
            f"{'kB up':>10} {'kB down':>10}"
        ]
        for run in self.runs:
            lines.append(
                f"{run['config']:<24} {run['sampler']:<12} {run['mean_error_sd']:>8.3f} "
                f"{run['sd_error']:>7.1%} {run['w2']:>9.4f} {run['ess']:>8.0f}"
                f" {run['bits_up'] / 8e3:>10.1f} {run['bits_down'] / 8e3:>10.1f}"
            )
        return "\n".join([*lines, f"errors are against {self.reference}"])


def compare(
    configs: Mapping[str, Config] | Sequence[Config],
    model: str | None = None,
    clients: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    progress: bool = True,
    **settings: Any,
) -> Comparison:
    """Hold several samplers against each other on one target: what they get wrong, and what that
    costs.

    ``configs`` are configs of :func:`consilience.sample`, by name or in a list; ``model``,
    ``clients`` and other settings hold for all of them.

    >>> import consilience
    >>> sites = {
    ...     "a": {"mean": [0.0], "precision": [[1.0]]},
    ...     "b": {"mean": [3.0], "precision": [[2.0]]},
    ... }
    >>> samplers = {
    ...     "plain": {"sampler": {"name": "lmc"}},
    ...     "compressed": {"sampler": {"name": "qlsd", "compress": "natural"}},
    ... }
    >>> found = consilience.compare(
    ...     samplers, "gaussian", sites, step=0.05, iterations=2000, progress=False
    ... )
    >>> found.reference, found.runs[0]["bits_up"] > found.runs[1]["bits_up"]
    ('the exact posterior', True)
    """
    if not isinstance(configs, Mapping):
        configs = {
            str(config)
            if isinstance(config, (str, os.PathLike)) and "\n" not in str(config)
            else f"config {k + 1}": config
            for k, config in enumerate(configs)
        }
    all_stated, columns = [], Columns()
    for name, config in configs.items():
        stated, columns = state(model, clients, config, settings)
        all_stated.append((name, stated))
    bar = shower(progress, "comparing")
    try:
        numbers, page = _consilience.compare(all_stated, columns, bar)
    finally:
        if bar is not None:
            bar.close()
    return Comparison(json.loads(numbers), page)


class Reproduction:
    """A table or figure of a paper, run again: ``claims`` with their ``verdicts``, ``readings``
    with their ``numbers``, and the ``page`` with its figures.
    """

    def __init__(self, facts: Mapping[str, Any], page: str) -> None:
        self.id: str = facts["id"]
        self.size: str = facts["size"]
        self.claims: list[dict[str, Any]] = facts["claims"]
        self.readings: list[dict[str, Any]] = facts["readings"]
        #: Why it could not be run, if it could not.
        self.not_run: str | None = facts["not_run"]
        self.page = Path(page)

    def __repr__(self) -> str:
        lines = [
            f"{claim['verdicts'][0]['verdict']}: {claim['says']}"
            for claim in self.claims
            if claim["verdicts"]
        ]
        return "\n".join([f"<consilience.Reproduction {self.id}, {self.size}>", *lines])


def reproduce(
    id: str,
    *,
    size: str = "quick",
    out: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    data: str | os.PathLike[str] | None = None,
) -> Reproduction:
    """Run a paper's experiment again and judge its claims. Names are those of
    :func:`consilience.reproductions`.

    Args:
        id: which, such as ``"toy-gaussian"``.
        size: ``"tiny"`` (seconds, no verdict worth much), ``"quick"``, ``"hour"`` or ``"full"``.
        out: where work, figures and tables are kept; ``reproductions/SIZE/ID`` if nothing is said.
            What is there already is not run again.
        seed: another seed than the study's own.
        data: the folder of data sets that are not built in.
    """
    folder = Path(out) if out is not None else Path("reproductions") / size / id
    facts, page = _consilience.reproduce(
        id, size, folder, seed, None if data is None else os.fspath(data)
    )
    return Reproduction(json.loads(facts), page)


def reproductions() -> list[dict[str, Any]]:
    """Every reproduction: ``id``, ``paper``, ``place``, ``claim``, and the ``data`` that it needs.

    >>> import consilience
    >>> "toy-gaussian" in [r["id"] for r in consilience.reproductions()]
    True
    """
    return list(json.loads(_consilience.reproductions()))
