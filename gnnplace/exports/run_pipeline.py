"""Trains by a planned pipeline in PyTorch's own runtime: torchrun --nproc-per-node 4 run.py net.py:step [--steps 10].

`net.py:step` is the function that was placed; it returns a `gnnplace.TorchStep`: module, loss, batch, optimisers.
"""

import argparse
import json
import os
import runpy
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import SplitPoint, pipeline
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.utils._pytree import tree_map


class CalledError(Exception):
    """Its arguments are those that the loss calls the module with."""


class InPlaceOf:
    """Stands for the module where the loss calls it, and answers an output."""

    def __init__(self, module: torch.nn.Module, output: Any = None) -> None:
        self.module, self.output = module, output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.output is None:
            raise CalledError(args, kwargs)
        return self.output


def train(step: Any, steps: int, device: torch.device) -> list[float]:
    """Trains the stages of this process; returns the last losses of micro-batches where the last stage is."""
    here = Path(__file__).parent
    plan, calls = json.loads((here / "plan.json").read_text()), []
    mine, number = plan["stages"][dist.get_rank()], plan["micro_batches"]
    parts = list(islice(cycle(step.batch.split(step.batch.tensors)), number))  # a step of one is each micro-batch
    for tensors in parts:
        try:
            step.loss_of(InPlaceOf(step.module), tensors)
        except CalledError as called:
            calls.append(called.args)

    def loss(output: Any, which: torch.Tensor) -> torch.Tensor:
        return step.loss_of(InPlaceOf(step.module, output), [each.to(device) for each in parts[int(which)]])

    spec = {name: SplitPoint[at] for name, at in plan["split_spec"].items()}
    pipe = pipeline(step.module, calls[0][0], calls[0][1], spec)
    schedule = _PipelineScheduleRuntime([pipe.build_stage(stage, device) for stage in mine], number, loss_fn=loss)
    schedule._load_csv(str(here / "schedule.csv"))
    args, kwargs = tree_map(lambda *each: torch.cat(each).to(device), *calls) if 0 in mine else ((), {})
    target, losses = torch.arange(number) if pipe.num_stages - 1 in mine else None, list[torch.Tensor]()
    for _ in range(steps):  # your batches in place of the example's, again and again
        losses.clear()
        schedule.step(*args, target=target, losses=losses, **kwargs)
        for optimizer in step.built_optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return [each.item() for each in losses]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", help="FILE.py:FUNCTION")
    parser.add_argument("--steps", type=int, default=1)
    arguments, cuda = parser.parse_args(), torch.cuda.is_available()
    path, _, function = arguments.step.rpartition(":")
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if losses := train(runpy.run_path(path)[function](), arguments.steps, device):
        print("losses of micro-batches:", *losses)
    dist.destroy_process_group()
