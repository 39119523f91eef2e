"""Resolves WORKLOAD, given as text: `FILE.py:FUNCTION`, `package.module:FUNCTION` or a name of the corpus.

The function takes no arguments and returns a `TorchStep`, a tuple of its parts, or a `TensorFlowStep`. It is called
with seeded generators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnnplace.corpus import manifest
from gnnplace.execution.workload import Workload
from gnnplace.frontends.tensorflow.step import TensorFlowStep
from gnnplace.sources.code import function, imported, is_code, user_code
from gnnplace.sources.code_graph import as_step

if TYPE_CHECKING:
    from gnnplace.frontends.torch.step import TorchStep

LOADER = f"{__name__}:load"  # what a host calls in its child process
MICRO_BATCH_LOADER = f"{__name__}:load_micro_batch"
BUILT = "python -m "


def load(text: str, seed: int) -> Workload:
    """The workload that `text` refers to. Raises ValueError if it does not exist or is no step."""
    return _load(text, seed, lambda step: step)


def load_micro_batch(text: str, seed: int) -> Workload:
    """The workload that `text` refers to, of several micro-batches the first, as measured costs are those of one."""
    return _load(text, seed, lambda step: step.of_micro_batch())


def _load(text: str, seed: int, part: Callable[[TorchStep], TorchStep]) -> Workload:
    name, build = _builder(text)
    import torch  # imported late, so that parsing of arguments need not wait for it

    torch.manual_seed(seed)
    with user_code(f"{text}: can't be built"):
        step = as_step(build())
        if isinstance(step, TensorFlowStep):
            from gnnplace.execution.tensorflow.workload import TensorFlowWorkload

            return TensorFlowWorkload(replace(step, name=name, seed=seed))
        from gnnplace.execution.torch.workload import TorchWorkload
        from gnnplace.frontends.torch.step import TorchStep

        if isinstance(step, TorchStep):
            return TorchWorkload(part(step), name)
    raise ValueError(
        f"{text}: returned a {type(step).__name__}; a workload's function returns a TorchStep or a TensorFlowStep"
    )


def _builder(text: str) -> tuple[str, Callable[[], Any]]:
    """The name of a workload, and the function that builds it."""
    if is_code(text):
        return function(text)
    entry = manifest.entry(text)
    if not entry.builder.startswith(BUILT):
        raise ValueError(f"{text}: the corpus has only its graph ({entry.builder}), which can't be run")
    if manifest.installed():
        where = "set GNNPLACE_DATASETS to the folder datasets of a checkout"
        raise ValueError(
            f"{text}: a script builds its network ({entry.builder}), which an installed package does not hold; {where}"
        )
    module = imported(entry.builder.removeprefix(BUILT).split()[0], manifest.folder().parent)
    return text, lambda: module.workload(text)
