"""Compress vectors as clients do: a random quantiser, then a lossless code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import _consilience


class Encoded(bytes):
    """The bytes of a vector; ``bits`` counts those that mean something, ``dimension`` the
    coordinates.
    """

    bits: int
    dimension: int

    @classmethod
    def of(cls, data: bytes, bits: int, dimension: int) -> "Encoded":
        made = cls(data)
        made.bits, made.dimension = bits, dimension
        return made


class Compressor:
    """A quantiser with a code; make it with :func:`consilience.compressor`."""

    def __init__(self, text: str, code: str = "auto") -> None:
        self._core = _consilience.Compressor(text, code)

    def encode(self, vector: npt.ArrayLike, *, seed: int, round: int = 0) -> Encoded:
        """Quantise and encode a vector. The same seed and round give the same bytes."""
        array = np.asarray(vector, dtype=np.float64)
        data, bits = self._core.encode(array, seed, round)
        return Encoded.of(data, bits, array.shape[0])

    def decode(
        self, data: bytes, dimension: int | None = None, *, seed: int = 0, round: int = 0
    ) -> npt.NDArray[np.float64]:
        """The vector that the receiver sees. Only ``layered`` needs the sender's seed and round;
        plain bytes need the dimension.
        """
        if dimension is None:
            if not isinstance(data, Encoded):
                raise TypeError("plain bytes do not say how long the vector is: give its dimension")
            dimension = data.dimension
        return self._core.decode(data, dimension, seed, round)

    def omega(self, dimension: int) -> float | None:
        """The least known omega with E|C(v) - v|² ≤ omega |v|², for unbiased compressors; None for
        others.
        """
        return self._core.omega(dimension)

    def alpha(self, dimension: int) -> float | None:
        """The largest known alpha with E|C(v) - v|² ≤ (1 - alpha) |v|², for contractive
        compressors; None for others.
        """
        return self._core.alpha(dimension)

    def __repr__(self) -> str:
        return repr(self._core)


def compressor(text: str, *, code: str = "auto") -> Compressor:
    """A compressor by its text form, such as ``qsgd(16)``, ``natural``, ``top_k(10)`` or
    ``scaled(block(rand_k(4), 64))``; ``consilience list`` shows all.

    >>> import consilience, numpy as np
    >>> qsgd = consilience.compressor("qsgd(16)")
    >>> sent = qsgd.encode(np.linspace(-1, 1, 100), seed=1)
    >>> sent.bits < 32 * 100, qsgd.decode(sent).shape
    (True, (100,))
    """
    return Compressor(text, code)
