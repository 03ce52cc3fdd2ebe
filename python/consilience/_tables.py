"""Read the columns of whatever people keep tables in. No library for tables is needed, and none is
imported that is not there already.
"""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DataError

#: One column, as the engine takes it: numbers (NaN where missing), or words (None where missing).
Cells = npt.NDArray[np.float64] | list[str | None]


#: What a moment may be.
MOMENTS = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
#: What to do about dates. The first date of a site is not that of the others.
DATES = (
    "leave it out, or give numbers that mean the same at every site, such as days since one date: "
    '(column - numpy.datetime64("2020-01-01")) / numpy.timedelta64(1, "D")'
)


def columns_of(
    table: Any, where: str, *, dates_are_words: bool = False
) -> list[tuple[str, Cells]]:
    """The named columns of a table: a mapping, a structured array, a pair ``(X, y)``, or anything
    that looks like a data frame.

    Args:
        dates_are_words: take dates for words, where it is not known yet whether they are used.
    """
    if dates_are_words:
        columns = ((name, _without_dates(values)) for name, values in named(table, where))
        return converted(columns, where)
    return converted(named(table, where), where)


def converted(
    columns: Iterable[tuple[Any, Any]], where: str, only: Container[str] | None = None
) -> list[tuple[str, Cells]]:
    """Those of the columns that are wanted, as numbers or words; the others are not looked at."""
    wanted = ((str(name), values) for name, values in columns if only is None or str(name) in only)
    return [(name, cells(values, f"{where}, column `{name}`")) for name, values in wanted]


def _without_dates(values: Any) -> Any:
    """A column with its dates and times as words."""
    array = _numpy(values)
    if array.dtype.kind in "Mm":
        words = array.astype(str).astype(object)
        words[np.isnat(array)] = None
        array = words
    elif array.dtype.kind == "O" and any(isinstance(value, MOMENTS) for value in array.flat):
        known = [_missing(value) for value in array.tolist()]
        array = np.array([None if value is None else str(value) for value in known], dtype=object)
    return array


def check_kinds(sites: Mapping[str, list[tuple[str, Cells]]]) -> None:
    """Refuse a column with numbers at one site and words at another."""
    seen: dict[str, tuple[str, Cells]] = {}
    for site, columns in sites.items():
        for name, found in columns:
            if (words := _words(found)) is None:
                continue
            other, before = seen.setdefault(name, (site, found))
            if words != _words(before):
                one, two = (site, other) if words else (other, site)
                word = next(value for value in (found if words else before) if value is not None)
                raise DataError(
                    f"column `{name}`: client {one!r} has words, such as {word!r}, "
                    f"where client {two!r} has numbers\n"
                    "  convert one of them: numbers at every site (NaN where they are missing), "
                    "or words at every site: column.astype(str)"
                )


def _words(found: Cells) -> bool | None:
    """Whether a column has words; ``None`` where everything is missing, which fits both."""
    if isinstance(found, list):
        return True if any(value is not None for value in found) else None
    return None if np.isnan(found).all() else False


def is_table(value: Any) -> bool:
    """Whether something is one table rather than several."""
    if isinstance(value, np.ndarray):
        return value.dtype.names is not None or (value.ndim == 2 and value.dtype.kind != "O")
    if isinstance(value, Mapping):
        return bool(value) and all(_is_column(column) for column in value.values())
    if isinstance(value, tuple) and len(value) == 2:
        return _is_column(value[1]) and not _is_column(value[0])
    looks = ("columns", "column_names", "__arrow_c_stream__", "__dataframe__")
    return any(hasattr(value, name) for name in looks)


def _is_column(value: Any) -> bool:
    """Whether something is a list of values, one a row."""
    if isinstance(value, (list, tuple)):
        several = (list, tuple, Mapping, np.ndarray)
        return bool(value) and not any(
            isinstance(cell, several) or is_table(cell) for cell in value[:3]
        )
    structured = getattr(getattr(value, "dtype", None), "names", None) is not None
    plain = getattr(value, "ndim", None) == 1 and not structured
    return plain or type(value).__name__ in ("Series", "ChunkedArray")


def named(table: Any, where: str) -> Iterator[tuple[Any, Any]]:
    """Names and values of the columns."""
    if isinstance(table, Mapping):
        yield from table.items()
    elif isinstance(table, np.ndarray) and table.dtype.names is not None:
        yield from ((name, table[name]) for name in table.dtype.names)
    elif isinstance(table, tuple) and len(table) == 2:
        yield from _pair(*table, where)
    elif isinstance(table, np.ndarray) and table.ndim == 2:
        yield from ((f"x{k + 1}", table[:, k]) for k in range(table.shape[1]))
    elif hasattr(table, "column_names") and hasattr(table, "column"):  # Arrow
        yield from ((name, table.column(name)) for name in table.column_names)
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):  # pandas, polars
        yield from ((name, table[name]) for name in table.columns)
    elif hasattr(table, "__arrow_c_stream__") or hasattr(table, "__dataframe__"):
        yield from named(_adopted(table, where), where)
    else:
        raise DataError(
            f"{where}: a {type(table).__name__} is no table\n"
            "  give a dictionary of columns, a structured array, a pair (X, y), or a pandas, "
            "polars or Arrow table"
        )


def cells(values: Any, where: str) -> Cells:
    """One column as numbers or words. Contiguous 64-bit numbers are not copied."""
    array = _numpy(values)
    if array.ndim != 1:
        raise DataError(
            f"{where}: it has {array.ndim} dimensions, a column has one\n  give one array for "
            f"each column"
        )
    if array.dtype.kind in "fiub":
        return np.ascontiguousarray(array, dtype=np.float64)
    if array.dtype.kind in "OUST":
        known = [_missing(value) for value in array.tolist()]
        if any(isinstance(value, str) for value in known):
            others = [
                k for k, value in enumerate(known) if not isinstance(value, (str, type(None)))
            ]
            if others:
                word = next(value for value in known if isinstance(value, str))
                raise DataError(
                    f"{where}: it has words, such as {word!r}, and other things, "
                    f"such as {known[others[0]]!r} in row {others[0] + 1}\n"
                    "  give numbers (NaN where they are missing), or words: column.astype(str)"
                )
            return known
        try:
            return np.array([np.nan if value is None else float(value) for value in known])
        except (TypeError, ValueError):
            pass
        if any(isinstance(value, MOMENTS) for value in known):
            raise DataError(f"{where}: dates and times are neither numbers nor words\n  {DATES}")
    if array.dtype.kind in "Mm":
        kind = f"dates and times ({array.dtype})"
        raise DataError(f"{where}: {kind} are neither numbers nor words\n  {DATES}")
    raise DataError(
        f"{where}: {array.dtype} is neither numbers nor words\n  convert it, or leave it out"
    )


def _missing(value: Any) -> Any:
    """None for every way to write that a value is missing."""
    if (
        value is None
        or (isinstance(value, float) and value != value)
        or type(value).__name__ in ("NAType", "NaTType")
    ):
        return None
    return value.decode() if isinstance(value, bytes) else value


def _numpy(values: Any) -> npt.NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, (list, tuple)) and any(isinstance(value, str) for value in values):
        return np.array(
            values, dtype=object
        )  # else numbers among words would be words, and NaN a word
    if (
        type(values).__module__.partition(".")[0] == "pandas"
        and str(getattr(values, "dtype", "")) == "category"
    ):
        values = values.astype(object)
    convert = getattr(values, "to_numpy", None)
    return np.asarray(convert() if callable(convert) else values)


def _pair(features: Any, response: Any, where: str) -> Iterator[tuple[str, Any]]:
    """``(X, y)``: the features' own names where they have any, else x1, x2, ...; the response is
    last and called y.
    """
    if hasattr(features, "columns") or isinstance(features, Mapping):
        yield from named(features, where)
    else:
        array = np.asarray(features)
        if array.ndim != 2:
            raise DataError(
                f"{where}: X has {array.ndim} dimensions\n  give one row for each observation, "
                f"one column for each feature"
            )
        yield from ((f"x{k + 1}", array[:, k]) for k in range(array.shape[1]))
    yield "y", response


def _adopted(table: Any, where: str) -> Any:
    """A table of an unknown library, in the first known one that is installed."""
    for library, adopt in (
        [("pyarrow", "table"), ("polars", "from_arrow")]
        if hasattr(table, "__arrow_c_stream__")
        else []
    ):
        try:
            return getattr(importlib.import_module(library), adopt)(table)
        except ImportError:
            continue
    if hasattr(table, "__dataframe__"):
        for library, module in [
            ("pyarrow", "pyarrow.interchange"),
            ("pandas", "pandas.api.interchange"),
            ("polars", "polars"),
        ]:
            try:
                found = importlib.import_module(module)
            except ImportError:
                continue
            return getattr(found, "from_dataframe")(table)
    raise DataError(
        f"{where}: a {type(table).__name__} is read by pyarrow, pandas or polars\n  install one "
        f"of them, or give a dictionary of columns"
    )
