"""Read the columns of whatever people keep tables in. No library for tables is needed, and none is imported that is not there already."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DataError

#: One column, as the engine takes it: numbers (NaN where missing), or words (None where missing).
Cells = npt.NDArray[np.float64] | list[str | None]


def columns_of(table: Any, where: str) -> list[tuple[str, Cells]]:
    """The named columns of a table: a mapping, a structured array, a pair ``(X, y)``, or anything that looks like a data frame."""
    return [(str(name), cells(values, f"{where}, column `{name}`")) for name, values in named(table, where)]


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
            "  give a dictionary of columns, a structured array, a pair (X, y), or a pandas, polars or Arrow table"
        )


def cells(values: Any, where: str) -> Cells:
    """One column as numbers or words. Contiguous 64-bit numbers are not copied."""
    array = _numpy(values)
    if array.ndim != 1:
        raise DataError(f"{where}: it has {array.ndim} dimensions, a column has one\n  give one array for each column")
    if array.dtype.kind in "fiub":
        return np.ascontiguousarray(array, dtype=np.float64)
    if array.dtype.kind in "OUST":
        known = [_missing(value) for value in array.tolist()]
        if any(isinstance(value, str) for value in known):
            return [value if value is None else str(value) for value in known]
        try:
            return np.array([np.nan if value is None else float(value) for value in known])
        except (TypeError, ValueError):
            pass
    raise DataError(f"{where}: {array.dtype} is neither numbers nor words\n  convert it, e.g. dates to days since the first")


def _missing(value: Any) -> Any:
    """None for every way to write that a value is missing."""
    if value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.decode() if isinstance(value, bytes) else value


def _numpy(values: Any) -> npt.NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    if type(values).__module__.partition(".")[0] == "pandas" and str(getattr(values, "dtype", "")) == "category":
        values = values.astype(object)
    convert = getattr(values, "to_numpy", None)
    return np.asarray(convert() if callable(convert) else values)


def _pair(features: Any, response: Any, where: str) -> Iterator[tuple[str, Any]]:
    """``(X, y)``: the features' own names where they have any, else x1, x2, ...; the response is last and called y."""
    if hasattr(features, "columns") or isinstance(features, Mapping):
        yield from named(features, where)
    else:
        array = np.asarray(features)
        if array.ndim != 2:
            raise DataError(f"{where}: X has {array.ndim} dimensions\n  give one row for each observation, one column for each feature")
        yield from ((f"x{k + 1}", array[:, k]) for k in range(array.shape[1]))
    yield "y", response


def _adopted(table: Any, where: str) -> Any:
    """A table of an unknown library, in one that is known: the first of those that are installed."""
    for library, adopt in [("pyarrow", "table"), ("polars", "from_arrow")] if hasattr(table, "__arrow_c_stream__") else []:
        try:
            return getattr(importlib.import_module(library), adopt)(table)
        except ImportError:
            continue
    if hasattr(table, "__dataframe__"):
        for library, module in [("pyarrow", "pyarrow.interchange"), ("pandas", "pandas.api.interchange"), ("polars", "polars")]:
            try:
                found = importlib.import_module(module)
            except ImportError:
                continue
            return getattr(found, "from_dataframe")(table)
    raise DataError(f"{where}: a {type(table).__name__} is read by pyarrow, pandas or polars\n  install one of them, or give a dictionary of columns")
