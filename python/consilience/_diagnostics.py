"""Warn of what the reader of an answer should know first."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import ConsilienceWarning

#: The code of the warning that a run was stopped, which has a category of its own.
INTERRUPTED = "interrupted"


class Diagnostic(str):
    """A warning of a run, as text: what is wrong and by how much, and what to do.

    >>> import consilience
    >>> sites = {"a": {"mean": [0.0], "precision": [[1.0]]}}
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as raised:
    ...     warnings.simplefilter("always")
    ...     result = consilience.sample(
    ...         "gaussian", sites, step=0.1, chains=1, iterations=2000, progress=False
    ...     )
    >>> [str(warning.message) for warning in raised] == result.warnings == result.summary().warnings
    True
    >>> "one chain" in result.warnings[0]
    True
    """

    #: Which warning it is, in a word for programs.
    code: str
    #: ``"info"``, ``"warning"`` or ``"error"``: whether the draws are to be relied on.
    severity: str
    #: The numbers of the message, in full.
    numbers: dict[str, float]
    #: What is wrong.
    message: str
    #: What to do about it; empty where nothing need be done.
    remedy: str

    def __new__(
        cls,
        message: str,
        remedy: str = "",
        code: str = "",
        severity: str = "warning",
        numbers: Mapping[str, float] | None = None,
    ) -> "Diagnostic":
        made = super().__new__(cls, f"{message}\n  {remedy}" if remedy else message)
        made.message, made.remedy, made.code = message, remedy, code
        made.severity, made.numbers = severity, dict(numbers or {})
        return made

    def __getnewargs__(  # type: ignore[override]
        self,
    ) -> tuple[str, str, str, str, dict[str, float]]:
        return self.message, self.remedy, self.code, self.severity, self.numbers


def diagnostics(told: Iterable[Mapping[str, Any]]) -> list[Diagnostic]:
    """The warnings that a run tells."""
    parts = ("message", "remedy", "code", "severity", "numbers")
    return [Diagnostic(*(warning[part] for part in parts)) for warning in told]


def warn(all: Iterable[Diagnostic]) -> None:
    """Raise each as a Python warning, at the line that called the package."""
    for diagnostic in all:
        if diagnostic.code != INTERRUPTED:
            warnings.warn(diagnostic, ConsilienceWarning, stacklevel=depth())


def depth() -> int:
    """How far up the first caller outside this package is, as ``stacklevel`` counts from the
    function that calls this one.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    frame, level = sys._getframe(1), 1
    while (
        frame.f_back is not None
        and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == here
    ):
        frame, level = frame.f_back, level + 1
    return level
