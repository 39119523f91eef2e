"""The C interface of Scotch (Pellegrini and Roman, 1996): static mapping of a weighted graph onto a weighted machine.

The library is Debian's package `libscotch-7.0`; it is not on PyPI. Its random number generator is global to the
process, so calls hold a lock.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL, RTLD_GLOBAL, c_int, c_void_p
from functools import cache
from threading import Lock
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

ERRORS, LIBRARY = "libscotcherr-7.0.so", "libscotch-7.0.so"
HOW_TO_GET = "Scotch's library is not installed: apt-get install libscotch-7.0"
_one_at_a_time = Lock()


class MissingScotchError(Exception):
    """Scotch's library is not installed; the message says how to get it."""


class Weighted(NamedTuple):
    """An undirected graph in CSR form without loops, with integer weights. Each edge is listed at both of its ends."""

    ptr: Int64[np.ndarray, " vertices_plus_1"]
    neighbour: Int64[np.ndarray, " ends"]
    vertex_weight: Int64[np.ndarray, " vertices"]
    edge_weight: Int64[np.ndarray, " ends"]


def mapped(graph: Weighted, machine: Weighted, seed: int) -> Int64[np.ndarray, " vertices"]:
    """The processor of each vertex of `graph`.

    Scotch keeps loads proportional to the weights of the processors and minimises the sum over edges of weight times
    distance. The edges of `machine` join all pairs of processors; their weights are distances. Raises
    MissingScotchError.
    """
    scotch = _library()
    with (
        _one_at_a_time,
        _graph(scotch, graph) as guest,
        _graph(scotch, machine) as processors,
        _arch(scotch, processors) as arch,
    ):
        scotch.SCOTCH_randomSeed(seed)
        scotch.SCOTCH_randomReset()
        with _held(scotch, "strat") as strategy:
            part = np.zeros(len(graph.vertex_weight), dtype=np.intc)
            _check(scotch.SCOTCH_graphMap(guest, arch, strategy, _address(part)))
    return part.astype(np.int64)


def available() -> bool:
    """Whether Scotch's library is installed."""
    try:
        _library()
    except MissingScotchError:
        return False
    return True


@cache
def _library() -> CDLL:
    os.environ["SCOTCH_PTHREAD_NUMBER"] = "1"  # with several threads, results differ from run to run
    try:
        CDLL(ERRORS, mode=RTLD_GLOBAL)
        scotch = CDLL(LIBRARY)
    except OSError as error:
        raise MissingScotchError(HOW_TO_GET) from error
    assert scotch.SCOTCH_numSizeof() == ctypes.sizeof(c_int)
    for kind in ("graph", "arch", "strat"):
        getattr(scotch, f"SCOTCH_{kind}Alloc").restype = c_void_p
    return scotch


@contextmanager
def _held(scotch: CDLL, kind: str) -> Iterator[c_void_p]:
    """An empty structure of Scotch, freed at the end."""
    handle = c_void_p(getattr(scotch, f"SCOTCH_{kind}Alloc")())
    try:
        _check(getattr(scotch, f"SCOTCH_{kind}Init")(handle))
        yield handle
        getattr(scotch, f"SCOTCH_{kind}Exit")(handle)
    finally:
        scotch.SCOTCH_memFree(handle)


@contextmanager
def _graph(scotch: CDLL, graph: Weighted) -> Iterator[c_void_p]:
    columns = [np.ascontiguousarray(column, dtype=np.intc) for column in graph]
    ptr, neighbour, vertex_weight, edge_weight = map(_address, columns)
    with _held(scotch, "graph") as handle:
        size = len(graph.neighbour)
        _check(
            scotch.SCOTCH_graphBuild(
                handle, 0, len(graph.vertex_weight), ptr, None, vertex_weight, None, size, neighbour, edge_weight
            )
        )
        yield handle  # Scotch reads the columns as long as its graph lives


@contextmanager
def _arch(scotch: CDLL, processors: c_void_p) -> Iterator[c_void_p]:
    with _held(scotch, "arch") as handle:
        _check(scotch.SCOTCH_archBuild2(handle, processors, 0, None))
        yield handle


def _address(column: np.ndarray) -> c_void_p:
    return column.ctypes.data_as(c_void_p)


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"Scotch failed with status {status}")
