"""One posterior from sites that may not pool their data.

>>> import consilience
>>> result = consilience.heart(iterations=2000, seed=1, progress=False)
>>> result.draws.shape
(4, 190, 22)
"""

from __future__ import annotations

from . import measures
from ._consilience import __version__
from ._listing import fields, samplers
from ._result import Result, Summary
from ._sample import heart, sample
from .compressors import Compressor, compressor
from .errors import ConfigError, DataError, Error, InterruptedWarning, Refused, SamplingError

__all__ = [
    "Compressor",
    "ConfigError",
    "DataError",
    "Error",
    "InterruptedWarning",
    "Refused",
    "Result",
    "SamplingError",
    "Summary",
    "__version__",
    "compressor",
    "fields",
    "heart",
    "measures",
    "sample",
    "samplers",
]
