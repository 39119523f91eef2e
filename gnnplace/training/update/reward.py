"""The reward of one step. Its sign (higher is better) and the price of an invalid placement are set here alone.

`negative_square_root` is the papers' (Mirhoseini et al., ICLR 2018: the root of the seconds, -10 where the placement is
invalid; Zhou et al., NeurIPS 2020: the root of the time over that of a baseline, which is the best single device here);
`negative_seconds` is Placeto's (Addanki et al., NeurIPS 2019); `inverse` is that of HSDAG (Duan et al., NeurIPS 2024);
`log_speedup` is this project's: it compares problems of any size, and tells a placement how far it is from fitting.
"""

from __future__ import annotations

import math
from typing import assert_never

import numpy as np
from jaxtyping import Int64

from gnnplace.config.training import RewardConfig
from gnnplace.problems import NS_PER_S
from gnnplace.result import StepResult

BYTES_PER_GB = 1e9
INVALID = -10.0  # the paper's reward of a placement that cannot run: the same as of a step of 100 s


def of(
    result: StepResult, config: RewardConfig, reference_ns: int, memory_bytes: Int64[np.ndarray, " devices"]
) -> float:
    """The reward that a configuration gives to a step, on devices of these memories."""
    match config.kind:
        case "sqrt":
            return negative_square_root(result, NS_PER_S, config.invalid)
        case "sqrt-ratio":
            return negative_square_root(result, reference_ns, config.invalid)
        case "inverse":
            return inverse(result)
        case "log-ratio":
            return log_speedup(result, reference_ns, memory_bytes, config.overflow, config.invalid)
        case "seconds":
            return negative_seconds(result, memory_bytes, config.overflow, config.invalid)
        case _:
            assert_never(config.kind)


def negative_square_root(result: StepResult, unit_ns: int = NS_PER_S, invalid: float = INVALID) -> float:
    """`-sqrt(step time / unit)`; `invalid` where the placement is infeasible for whatever reason."""
    if result.feasible_ns is None:
        return invalid
    return -math.sqrt(result.feasible_ns / unit_ns)


def negative_seconds(
    result: StepResult, memory_bytes: Int64[np.ndarray, " devices"], penalty: float, invalid: float = INVALID
) -> float:
    """`-seconds`, and where memory is missing `-(seconds + penalty * GB)`, but never below `invalid`.

    The missing GB are those of the device that lacks most; with Placeto's equal devices that is the highest peak. Its
    authors' code cuts costs off at 10 s; here that is the price of a placement that breaks another rule.
    """
    if result.step_time_ns is None or result.peak_memory_bytes is None:
        return invalid
    missing = float((result.peak_memory_bytes - memory_bytes).max())
    if result.infeasible is not None and missing <= 0:
        return invalid
    return max(invalid, -result.step_time_ns / NS_PER_S - penalty * max(0.0, missing) / BYTES_PER_GB)


def inverse(result: StepResult) -> float:
    """`1 / step time in seconds` (Duan et al., NeurIPS 2024); 0 where the placement is infeasible."""
    return 0.0 if result.feasible_ns is None else NS_PER_S / result.feasible_ns


def log_speedup(
    result: StepResult,
    reference_ns: int,
    memory_bytes: Int64[np.ndarray, " devices"],
    penalty: float,
    invalid: float = INVALID,
) -> float:
    """`-log(step time / reference) - penalty * overflow`: 0 for the reference itself, log 2 for a step twice as fast.

    A placement that is too large keeps its step time and pays for its overflow; one that breaks another rule (a missing
    link, a device that is not allowed, a split colocation group) gets `invalid`.
    """
    if result.step_time_ns is None or result.peak_memory_bytes is None:
        return invalid
    excess = overflow(result.peak_memory_bytes, memory_bytes)
    if result.infeasible is not None and excess == 0:
        return invalid
    return -math.log(result.step_time_ns / reference_ns) - penalty * excess


def overflow(peak_bytes: Int64[np.ndarray, " devices"], memory_bytes: Int64[np.ndarray, " devices"]) -> float:
    """The sum over devices of the missing share of their memory: `max(0, peak - memory) / memory`."""
    excess = np.maximum(0, peak_bytes - memory_bytes)
    return float((excess / np.maximum(1, memory_bytes)).sum())
