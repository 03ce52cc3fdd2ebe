"""State what is sampled and how, and sample it."""

from __future__ import annotations

import datetime
import difflib
import functools
import json
import os
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _consilience
from ._diagnostics import INTERRUPTED, Diagnostic, depth, warn
from ._model import AnyModel, Batch, Brought, bring
from ._progress import shower
from ._result import Result
from ._tables import Cells, check_kinds, columns_of, converted, is_table, named
from .errors import ArgumentError, ConfigError, DataError, InterruptedWarning

#: A config: a dictionary, the text of a TOML file, or the path of one.
Config = Mapping[str, Any] | str | os.PathLike[str]

#: The tables of a config in which a keyword is looked for, in this order: a seed is the config's,
#: and a start is the run's.
PLACES = ("", "run", "target", "sampler", "output", "data")
#: What others call our settings.
SYNONYMS = {
    "batch_size": "batch",
    "compressor": "compress",
    "cores": "threads",
    "data": "clients",
    "init": "start",
    "learning_rate": "step",
    "lr": "step",
    "n_samples": "iterations",
    "num_samples": "iterations",
    "random_seed": "seed",
    "samples": "iterations",
    "sites": "clients",
    "step_size": "step",
    "tune": "burn_in",
    "warmup": "burn_in",
}
#: The keywords of :func:`sample` that are no settings of a config by this name.
OTHERS = ("clients", "config", "likelihood", "model", "progress", "response", "sampler")


class Stated(NamedTuple):
    """A config as it crosses the border."""

    #: TOML, or JSON of a dictionary.
    text: str
    json: bool
    #: What complaints call it.
    file: str
    #: What its files are relative to.
    folder: str


Columns = list[tuple[str, list[tuple[str, Cells]]]]


def sample(
    model: str | AnyModel | Callable[[Batch], npt.ArrayLike | None] | None = None,
    clients: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    config: Config | None = None,
    sampler: str | None = None,
    step: Any = None,
    chains: int | None = None,
    iterations: int | None = None,
    seed: int | None = None,
    prior: Any = None,
    compress: Any = None,
    response: str | None = None,
    progress: bool = True,
    **more: Any,
) -> Result:
    """Draw from the one posterior that all clients together have.

    >>> import numpy as np, consilience
    >>> rng = np.random.default_rng(1)
    >>> def site(n):
    ...     x = rng.normal(size=n)
    ...     return {"dose": x, "ill": (rng.random(n) < 1 / (1 + np.exp(-x))).astype(float)}
    >>> sites = {"basel": site(80), "zurich": site(50)}
    >>> result = consilience.sample(
    ...     "ill == 1 ~ dose", sites, sampler="lmc", seed=3, progress=False
    ... )
    >>> result.parameters
    ['intercept', 'dose']

    Args:
        model: a name of :func:`consilience.models`, such as ``"logistic"``; or a formula such as
            ``"ill == yes ~ age + C(site)"``, by which the sites agree on codes, means and
            deviations. Without a formula columns are taken as they are, and the last one (or
            ``response``) is explained. Or a model of one's own, such as a
            :class:`consilience.Model`, that brings its clients; or the function of one, with
            ``clients={name: rows}`` and ``parameters=``.
        clients: ``{name: table}``. A table is a dictionary of columns, a structured array, a pair
            ``(X, y)``, or a pandas, polars or Arrow table. A Gaussian client is ``{"mean": ...,
            "precision": ...}`` (or ``"covariance"``).
        config: everything at once, as the command takes it: a dictionary, the text of a TOML file,
            or its path. Other arguments change it.
        sampler: a name of :func:`consilience.samplers`; if nothing is said ``"auto"``, the cheapest
            exact one (``"lmc"`` with a step or other settings of its kind).
        step: ``"auto"``, a number, or a schedule.
        chains, iterations: how many chains, and how many Langevin iterations each has, burn-in (a
            tenth) included.
        seed: the same seed gives the same chains, bit for bit, here and in the command.
        prior: the variance of a Gaussian prior, or ``{"law": "laplace", "scale": 1.0}`` and the
            like.
        compress: how clients compress what they send, such as ``"qsgd(16)"``.
        response: which column is explained.
        progress: show a bar on a terminal or in a notebook.
        **more: any other setting of a config: ``burn_in``, ``thin``, ``start``, ``threads``,
            ``temperature``, ``test``, ... and those of the sampler: ``batch``, ``refresh``,
            ``precondition``, ``participation``, ``synchronise``, ...

    Raises:
        ConfigError: something about the arguments is wrong; ``DataError``: something about the
            rows.
        ArgumentError: a keyword is no setting, which is a ``TypeError``, too.
        SamplingError: a chain diverged, or a model of one's own gave a gradient that is no number.
        Anything: what a model of one's own raises stops the chains and comes out as itself; its
            attribute ``result`` has the draws until then.

    What the reader of the answer should know first is raised as a :class:`ConsilienceWarning`, each
    thing once, and stands in ``result.warnings`` and below ``result.summary()``.

    Ctrl-C stops the chains and returns what they have drawn, with an :class:`InterruptedWarning`;
    before the first draw is kept it is raised as usual.
    """
    settings = dict(
        sampler=sampler,
        step=step,
        chains=chains,
        iterations=iterations,
        seed=seed,
        prior=prior,
        compress=compress,
        response=response,
    )
    brought = None
    if model is not None and not isinstance(model, str):
        start = (
            more.pop("start") if "start" in more and not isinstance(more["start"], str) else None
        )
        brought = bring(model, clients, more.pop("parameters", None), start)
        if "start" in more:
            brought = brought._replace(start=None)
        model, clients = "external", None
    stated, columns = state(model, clients, config, settings | more)
    return perform(stated, columns, progress, brought)


def heart(*, progress: bool = True, **settings: Any) -> Result:
    """The main job of the command: four hospitals, one posterior of heart disease. Takes the
    settings
    of :func:`sample`.

    >>> import consilience
    >>> result = consilience.heart(iterations=2000, progress=False)
    >>> [site["name"] for site in result.sites]
    ['cleveland', 'hungarian', 'switzerland', 'va']
    """
    return sample(config=_consilience.HEART, progress=progress, **settings)


def perform(
    stated: Stated, columns: Columns, progress: bool, brought: Brought | None = None
) -> Result:
    """Sample what was stated."""
    bar = shower(progress, "sampling")
    try:
        run, raised = _consilience.sample(stated, columns, now(), bar, brought)
    finally:
        if bar is not None:
            bar.close()
    result = Result(run)
    result._columns = list(columns)
    if raised is not None:
        setattr(raised, "result", result)
        raise raised
    if result.interrupted:
        if result.draws.shape[1] == 0:
            raise KeyboardInterrupt
        kept = f"stopped before the end: {result.draws.shape[1]} draws a chain are kept"
        told = Diagnostic(kept, code=INTERRUPTED)
        warnings.warn(told, InterruptedWarning, stacklevel=depth())
    warn(result.warnings)
    return result


def now() -> str:
    """This moment in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def state(
    model: str | None,
    clients: Mapping[str, Any] | Sequence[Any] | None,
    config: Config | None,
    settings: Mapping[str, Any],
) -> tuple[Stated, Columns]:
    """A config as text, once, and the rows that are in memory."""
    settings = {key: value for key, value in settings.items() if value is not None}
    if config is None and model is None:
        raise ConfigError(
            "there is nothing to sample\n"
            '  give a model and clients, e.g. sample("logistic", {"basel": table}), or a config'
        )
    if (
        config is not None
        and not isinstance(config, Mapping)
        and model is None
        and clients is None
        and not settings
    ):
        return _written(config), []
    top = _dictionary(config) if config is not None else {}
    if model is not None:
        table = top.setdefault("target", {})
        table["formula" if "~" in model else "model"] = model
    columns = _clients(top, clients, settings.pop("response", None)) if clients is not None else []
    _apply(top, settings)
    if config is None:
        # Settings of a sampler that is not named are those of the plainest one that has some.
        sampler = top.setdefault("sampler", {})
        sampler.setdefault("name", "lmc" if sampler else "auto")
    folder = "."
    if isinstance(config, (str, os.PathLike)) and _is_path(config):
        folder = os.path.dirname(os.fspath(config)) or "."
    text = json.dumps(top, default=_plain)
    return Stated(text, True, "the config", folder), columns


def _apply(top: dict[str, Any], settings: Mapping[str, Any]) -> None:
    run = top.get("run", {})
    if "iterations" in settings and "effective_draws" not in settings:
        run.pop("effective_draws", None)  # as the command does
    if "iterations" in settings and "burn_in" in run and "burn_in" not in settings:
        run["burn_in"] = (
            run["burn_in"] * settings["iterations"] // run.get("iterations", 10_000)
        )  # as the command does
    for key, value in settings.items():
        if key == "seed":
            top["seed"] = value
        elif key == "sampler":
            top.setdefault("sampler", {})["name"] = value
        elif key == "likelihood":
            top.setdefault("target", {})["model"] = value
        elif key == "prior" and isinstance(value, (int, float)):
            top.setdefault("target", {})["prior"] = {"law": "gaussian", "variance": value}
        elif (place := _places().get(key)) is None:
            raise _unknown(key)
        else:
            (top.setdefault(place, {}) if place else top)[key] = value


@functools.cache
def _places() -> dict[str, str]:
    """Which table of a config each setting belongs to."""
    fields = [(field["table"], field["key"]) for field in json.loads(_consilience.fields())]
    tables = {table.partition(".")[0] for table, _ in fields}
    settings = [(table, key) for table, key in fields if table or key not in tables]
    return {key: place for place in reversed(PLACES) for table, key in settings if table == place}


def _unknown(key: str) -> ArgumentError:
    """What is said of a keyword that is no setting."""
    known = sorted({*_places(), *OTHERS})
    near = [SYNONYMS[key]] if key in SYNONYMS else difflib.get_close_matches(key.lower(), known, 1)
    all_of_them = f"consilience.fields() has them all: {', '.join(known)}"
    fix = f"did you mean `{near[0]}`?" if near else all_of_them
    error = ArgumentError(f"`{key}` is no setting\n  {fix}")
    error.field, error.problem, error.fix = key, f"`{key}` is no setting", fix
    return error


def _clients(
    top: dict[str, Any], clients: Mapping[str, Any] | Sequence[Any], response: str | None
) -> Columns:
    """Name the clients in the config; give the columns of those with rows."""
    target = top.get("target", {})
    gaussian = target.get("model") == "gaussian"
    if not gaussian and is_table(clients):
        raise DataError(
            f"clients: this is one table (a {type(clients).__name__}), "
            "where one for each client is expected\n"
            '  give {"basel": table, "zurich": other}; if a column says whose a row is, '
            '{name: part for name, part in table.groupby("site")}; '
            'if there is one client, {"all": table}'
        )
    if not isinstance(clients, Mapping):
        clients = {f"client {k + 1}": table for k, table in enumerate(clients)}
    tables = {str(name): table for name, table in clients.items()}
    if gaussian:
        top["client"] = [{"name": name, **table} for name, table in tables.items()]
        return []
    explained = {"response": response} if response is not None else {}
    top["client"] = [{"name": name} | explained for name in tables]
    formula = target.get("formula")
    if formula is None:
        return [(name, columns_of(table, f"client {name!r}")) for name, table in tables.items()]
    all_columns = {name: list(named(table, f"client {name!r}")) for name, table in tables.items()}
    names = [(site, [str(column) for column, _ in listed]) for site, listed in all_columns.items()]
    used = set(_consilience.needed(str(formula), names))
    columns = {
        site: converted(listed, f"client {site!r}", used) for site, listed in all_columns.items()
    }
    check_kinds(columns)
    for site, listed in names:
        # What a formula takes away must be there, and is not looked at: `. - seen`.
        taken = [name for name in listed if name not in used and name in formula]
        rows = len(columns[site][0][1])
        columns[site] += [(name, np.full(rows, np.nan)) for name in taken]
    return list(columns.items())


def _is_path(config: Config) -> bool:
    return isinstance(config, os.PathLike) or (
        isinstance(config, str) and "\n" not in config and "=" not in config
    )


def _written(config: str | os.PathLike[str]) -> Stated:
    """A config that a person wrote: complaints cite its lines."""
    if not _is_path(config):
        return Stated(os.fspath(config), False, "the config", ".")
    path = Path(config)
    try:
        return Stated(path.read_text(), False, str(path), str(path.parent))
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read: {error}\n  check the path") from error


def _dictionary(config: Config) -> dict[str, Any]:
    if isinstance(config, Mapping):
        copied: dict[str, Any] = _copied(config)
        return copied
    stated = _written(config)
    try:
        return tomllib.loads(stated.text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{stated.file}: {error}") from error


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copied(inner) for key, inner in value.items() if inner is not None}
    return [_copied(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as JSON has them."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise ConfigError(
        f"{value!r} is nothing that a config can hold\n  use numbers, texts, lists and dictionaries"
    )
