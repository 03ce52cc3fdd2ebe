"""List what there is."""

from __future__ import annotations

import json

from . import _consilience


def samplers() -> list[dict[str, str]]:
    """Every sampler: ``name``, ``family``, ``paper``, and what it ``says`` it does.

    >>> import consilience
    >>> [s["name"] for s in consilience.samplers()][:3]
    ['auto', 'imh', 'pcn']
    """
    return list(json.loads(_consilience.samplers()))


def models() -> list[dict[str, str]]:
    """Every model by name: ``name``, and what it ``says`` of a client's data.

    >>> import consilience
    >>> [m["name"] for m in consilience.models()][:3]
    ['gaussian', 'isotropic', 'linear']
    """
    return list(json.loads(_consilience.models()))


def fields() -> list[dict[str, str]]:
    """Every field of a config: its ``table``, ``key``, the ``values`` that it may have, its
    ``default``, and what it ``says``.
    """
    return list(json.loads(_consilience.fields()))
