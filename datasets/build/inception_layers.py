"""The layers of Inception-V3 (Szegedy et al. 2016, table 1 and figures 5 to 8), for the builders of both frameworks.

A branch is a sequence of layers; "64 5x5" is a convolution (height x width), "/2" its stride (then without padding), "valid" without
padding at stride 1, "a | b" two convolutions side by side. Branches of a mixed module are joined along the channels.
"""

from __future__ import annotations

from collections.abc import Sequence

STEM = ("32 3x3/2", "32 3x3 valid", "64 3x3", "max/2", "80 1x1", "192 3x3 valid", "max/2")


def _mixed_35(pool: int) -> list[Sequence[str]]:
    return [("64 1x1",), ("48 1x1", "64 5x5"), ("64 1x1", "96 3x3", "96 3x3"), ("avg", f"{pool} 1x1")]


def _mixed_17(n: int) -> list[Sequence[str]]:
    double = (f"{n} 1x1", f"{n} 7x1", f"{n} 1x7", f"{n} 7x1", "192 1x7")
    return [("192 1x1",), (f"{n} 1x1", f"{n} 1x7", "192 7x1"), double, ("avg", "192 1x1")]


def _mixed_8() -> list[Sequence[str]]:
    return [("320 1x1",), ("384 1x1", "384 1x3 | 384 3x1"), ("448 1x1", "384 3x3", "384 1x3 | 384 3x1"), ("avg", "192 1x1")]


MIXED: list[list[Sequence[str]]] = [
    _mixed_35(32), _mixed_35(64), _mixed_35(64),
    [("384 3x3/2",), ("64 1x1", "96 3x3", "96 3x3/2"), ("max/2",)],
    _mixed_17(128), _mixed_17(160), _mixed_17(160), _mixed_17(192),
    [("192 1x1", "320 3x3/2"), ("192 1x1", "192 1x7", "192 7x1", "192 3x3/2"), ("max/2",)],
    _mixed_8(), _mixed_8(),
]  # fmt: skip
AUXILIARY = 7  # the mixed module that feeds the auxiliary head
