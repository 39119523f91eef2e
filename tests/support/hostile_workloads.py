"""Workloads that misbehave: while they are loaded, or in one device process of a placed step. Nothing heavy is imported until a step is."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

READY = "HOSTILE_READY"  # names a file that is made just before something hangs
FOR_EVER_S = 10**6
GENERATIONS = 5


class OwnError(ValueError):
    """An exception of a class that only this file knows."""


def segfault() -> Any:
    ctypes.string_at(0)


def sleep() -> Any:
    if READY in os.environ:
        Path(os.environ[READY]).touch()
    time.sleep(FOR_EVER_S)


def deaf() -> Any:
    """Hangs in native code, with the interpreter's lock, deaf to every signal but SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(FOR_EVER_S)


def daemon() -> Any:
    """Leaves a grandchild in a session of its own, whose parent has ended, and hangs."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            deaf()
        os._exit(0)
    sleep()


def forks() -> Any:
    """A fork bomb of some generations: each process makes two more, and all of them hang, deaf."""
    for _ in range(GENERATIONS):
        os.fork()
    deaf()


def vanish() -> Any:
    """Ends as if all were well."""
    os._exit(0)


def allocate() -> Any:
    import numpy as np

    hoard = []
    while True:
        hoard.append(np.empty(2**28, dtype=np.uint8))  # never touched, so that the machine doesn't feel it


def leave() -> Any:
    sys.exit(7)


def own_exception() -> Any:
    raise OwnError("a sentence of\ntwo lines")


def crash() -> Any:
    raise RuntimeError("x" * 10**6)


def silent() -> Any:
    """Closes every descriptor, the host's too, and lives on."""
    os.closerange(3, 1000)
    time.sleep(FOR_EVER_S)


def orphan() -> Any:
    """Kills the keeper."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(FOR_EVER_S)


def wrong_type() -> Any:
    return 17


def chatter() -> Any:
    """A good step whose function prints, also past Python."""
    print("noise " * 10**5)
    os.write(1, b"noise\n" * 10**4)
    return _step(())


def hang_when_placed() -> Any:
    return _step(("sleep_anywhere",))


def by_placement() -> Any:
    """A step with one op for each of `WAYS`, in that order, which does so where it stands on the second device."""
    return _step(tuple(WAYS))


def _step(ways: tuple[str, ...]) -> Any:
    import torch

    from gnnplace.frontends.torch.step import TorchStep

    first, second = sorted(os.sched_getaffinity(0))[:2]

    @torch.library.custom_op("hostile::misbehave", mutates_args=(), schema="(Tensor x, str way) -> Tensor")
    def misbehave(x: torch.Tensor, way: str) -> torch.Tensor:
        core = os.sched_getaffinity(0)
        if way == "sleep_anywhere" and len(core) == 1:
            sleep()
        if way == "other_result" and core == {second}:
            return x + os.getpid()
        if way != "sleep_anywhere" and core == {second}:
            WAYS[way]()
        return x.clone()

    misbehave.register_fake(lambda x, way: torch.empty_like(x))

    def loss(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        made = module(x)
        for way in ways:
            made = made + torch.ops.hostile.misbehave(x, way)
        return made.square().mean()

    return TorchStep(torch.nn.Linear(64, 64), loss, (torch.randn(32, 64),), "sgd")


def _no_kernel() -> None:
    raise NotImplementedError("no kernel here")


def _native_hoard() -> None:
    import torch

    hoard = []
    while True:
        hoard.append(torch.empty(2**26))


WAYS: dict[str, Callable[[], Any]] = {
    "segfault": segfault, "sleep": sleep, "deaf": deaf, "allocate": allocate, "native_hoard": _native_hoard, "no_kernel": _no_kernel,
    "other_result": lambda: None, "crash": crash, "own_exception": own_exception, "exit": lambda: os._exit(3), "leave": leave,
    "daemon": daemon, "silent": silent, "forks": forks, "vanish": vanish,
}  # fmt: skip
