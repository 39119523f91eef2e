"""Experiments as named cells: what is missing is computed, one process pinned to a core each, and saved after every cell."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from experiments import results
from gnnplace.isolation.linux import die_with_parent

Cell = dict[str, Any]
Job = tuple[Callable[..., Cell], tuple[Any, ...]]


def compute(path: Path, jobs: Mapping[str, Job], settings: Mapping[str, Any]) -> dict[str, Cell]:
    """All cells of `jobs`, those that `path` holds already taken from there. Raises ValueError where they had other settings."""
    document = results.load(path) or {"provenance": results.provenance(path.parents[1]), "settings": dict(settings), "cells": {}}
    if document["settings"] != dict(settings):
        raise ValueError(f"{path}: holds results of other settings ({document['settings']}); move it away to begin anew")
    cells: dict[str, Cell] = document["cells"]
    missing = {name: job for name, job in jobs.items() if name not in cells}
    now = results.provenance(path.parents[1])
    made = {"commit": now["commit"], "hardware": now["hardware"]}
    os.environ["OMP_NUM_THREADS"] = "1"  # of what is spawned: its process has one core
    spawn, cores = multiprocessing.get_context("spawn"), sorted(os.sched_getaffinity(0))
    with ProcessPoolExecutor(len(cores), mp_context=spawn, initializer=_pin, initargs=(spawn.Value("i", 0), cores, os.getpid())) as pool:
        futures = {pool.submit(function, *values): name for name, (function, values) in missing.items()}
        for future in as_completed(futures):
            cells[futures[future]] = future.result() | made
            results.save(path, document)
            print(f"{sum(name in cells for name in jobs)} of {len(jobs)}: {futures[future]}", flush=True)
    return cells


def _pin(started: Synchronized[int], cores: list[int], parent: int) -> None:
    die_with_parent(parent)
    with started.get_lock():
        os.sched_setaffinity(0, {cores[started.value % len(cores)]})
        started.value += 1
