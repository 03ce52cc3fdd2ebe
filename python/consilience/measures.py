"""Measure draws: have the chains converged, how much do they say, how far are they from the truth.

Draws are arrays of chain, draw and parameter (``result.draws``), or of chain and draw for one
scalar.

>>> import numpy as np
>>> from consilience import measures
>>> draws = np.random.default_rng(1).normal(size=(4, 500, 2))
>>> bool((measures.rhat(draws) < 1.02).all())
True
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import _consilience
from .errors import DataError

Floats = npt.NDArray[np.float64]


def rhat(draws: npt.ArrayLike) -> Floats:
    """Rank-normalised split R-hat of each parameter."""
    return _of("rhat", draws)


def ess_bulk(draws: npt.ArrayLike) -> Floats:
    """Effective draws for the centre of each parameter."""
    return _of("ess_bulk", draws)


def ess_tail(draws: npt.ArrayLike) -> Floats:
    """Effective draws for the 5% and 95% quantiles of each parameter, whichever has fewer."""
    return _of("ess_tail", draws)


def ess_mean(draws: npt.ArrayLike) -> Floats:
    """Effective draws for the mean of each parameter."""
    return _of("ess_mean", draws)


def mcse_mean(draws: npt.ArrayLike) -> Floats:
    """Monte Carlo standard error of the mean of each parameter."""
    return _of("mcse_mean", draws)


def mcse_sd(draws: npt.ArrayLike) -> Floats:
    """Monte Carlo standard error of the standard deviation of each parameter."""
    return _of("mcse_sd", draws)


def w2(left: npt.ArrayLike, right: npt.ArrayLike) -> float:
    """Exact 2-Wasserstein distance between two samples of equally many points, one a row: memory
    n²,
    time up to n³.

    >>> w2([[0.0, 0.0]], [[3.0, 4.0]])
    5.0
    """
    return _consilience.distance("w2", _points(left), _points(right))


def sliced_w2(
    left: npt.ArrayLike, right: npt.ArrayLike, directions: int = 100, seed: int = 1
) -> float:
    """Sliced 2-Wasserstein distance, for samples too large to pair off."""
    return _consilience.distance("sliced_w2", _points(left), _points(right), directions, seed)


def gaussian_w2(left: npt.ArrayLike, right: npt.ArrayLike) -> float:
    """2-Wasserstein distance between the Gaussians with the samples' means and covariances."""
    return _consilience.distance("gaussian_w2", _points(left), _points(right))


def _of(name: str, draws: npt.ArrayLike) -> Floats:
    array = np.asarray(draws, dtype=np.float64)
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim != 3:
        raise DataError(
            f"draws have {array.ndim} dimensions\n  give chain, draw and parameter, or chain and "
            f"draw of one scalar"
        )
    return _consilience.measured(name, array)


def _points(points: npt.ArrayLike) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    if array.ndim == 3:
        array = array.reshape(-1, array.shape[2])  # the draws of all chains
    if array.ndim != 2:
        raise DataError(
            f"points have {array.ndim} dimensions\n  give one point a row, or chain, draw and "
            f"parameter"
        )
    return array
