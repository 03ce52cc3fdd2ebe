"""One posterior from sites that may not pool their data.

>>> import consilience
>>> result = consilience.heart(iterations=2000, seed=1, progress=False)
>>> result.draws.shape
(4, 1800, 22)
"""

from __future__ import annotations

from . import measures, network
from ._consilience import __version__
from ._diagnostics import Diagnostic
from ._judged import Comparison, Exact, Law, Reproduction, compare, exact, reproduce, reproductions
from ._listing import fields, models, samplers
from ._model import AnyModel, Batch, Model
from ._result import (
    Effects,
    Loo,
    ModelComparison,
    Prediction,
    Result,
    Summary,
    compare_models,
    load,
)
from ._sample import heart, sample
from .compressors import Compressor, compressor
from .errors import (
    ArgumentError,
    ConfigError,
    ConsilienceWarning,
    DataError,
    Error,
    InterruptedWarning,
    Refused,
    SamplingError,
)

__all__ = [
    "AnyModel",
    "ArgumentError",
    "Batch",
    "Comparison",
    "Compressor",
    "ConfigError",
    "ConsilienceWarning",
    "DataError",
    "Diagnostic",
    "Effects",
    "Error",
    "Exact",
    "InterruptedWarning",
    "Law",
    "Loo",
    "Model",
    "ModelComparison",
    "Prediction",
    "Refused",
    "Reproduction",
    "Result",
    "SamplingError",
    "Summary",
    "__version__",
    "compare",
    "compare_models",
    "compressor",
    "exact",
    "fields",
    "heart",
    "load",
    "measures",
    "models",
    "network",
    "reproduce",
    "reproductions",
    "sample",
    "samplers",
]
