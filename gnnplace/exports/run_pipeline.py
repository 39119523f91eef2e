"""Trains by a planned pipeline in PyTorch's own runtime: torchrun --nproc-per-node 4 run.py net.py:step [--steps 10].

`net.py:step` is the function that was placed; it returns a `gnnplace.TorchStep`: module, loss, batch, optimisers.
"""

import argparse
import json
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
    plan, rank, calls = json.loads((here / "plan.json").read_text()), dist.get_rank(), []
    replica, mine = next(n for n, ranks in enumerate(plan["replicas"]) if rank in ranks), plan["stages"][rank]
    shares, number = plan["micro_batches"], plan["micro_batches"][replica]
    alike = sorted({tuple(r for r, each in enumerate(plan["stages"]) if each == some) for some in plan["stages"]})
    pipeline_group, _ = dist.new_subgroups_by_enumeration(plan["replicas"])
    replicas_group, _ = dist.new_subgroups_by_enumeration([list(ranks) for ranks in alike])
    batches = cycle(step.batch.split(step.batch.tensors))  # a step of one is each micro-batch
    parts = list(islice(batches, sum(shares[:replica]), sum(shares[: replica + 1])))
    for tensors in parts:
        try:
            step.loss_of(InPlaceOf(step.module), tensors)
        except CalledError as called:
            calls.append(called.args)

    def loss(output: Any, which: torch.Tensor) -> torch.Tensor:
        return step.loss_of(InPlaceOf(step.module, output), [each.to(device) for each in parts[int(which)]])

    spec = {name: SplitPoint[at] for name, at in plan["split_spec"].items()}
    pipe = pipeline(step.module, calls[0][0], calls[0][1], spec)
    stages = [pipe.build_stage(stage, device, pipeline_group) for stage in mine]
    schedule = _PipelineScheduleRuntime(stages, number, loss_fn=loss)
    schedule._load_csv(str(here / plan["schedules"][replica]))
    gradients_of = [parameter for stage in stages for parameter in stage.submod.parameters()]
    args, kwargs = tree_map(lambda *each: torch.cat(each).to(device), *calls) if 0 in mine else ((), {})
    target, losses = torch.arange(number) if pipe.num_stages - 1 in mine else None, list[torch.Tensor]()
    for _ in range(steps):  # your batches in place of the example's, again and again
        losses.clear()
        schedule.step(*args, target=target, losses=losses, **kwargs)
        for gradient in (parameter.grad for parameter in gradients_of if parameter.grad is not None):
            gradient *= number / sum(shares)  # PyTorch has taken the mean of this replica's
            dist.all_reduce(gradient, group=replicas_group)
        clip(step, gradients_of, device, pipeline_group)
        for optimizer in step.built_optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return [each.item() for each in losses]


def clip(step: Any, parameters: list[torch.nn.Parameter], device: torch.device, stages: dist.ProcessGroup) -> None:
    """Clips gradients by their common norm over all stages, and by value, as the step says."""
    trained = {id(each) for o in step.built_optimizers for group in o.param_groups for each in group["params"]}
    ours = [each for each in parameters if id(each) in trained]
    if step.clip_norm is not None:
        gradients = [each.grad for each in ours if each.grad is not None]
        squared = torch.nn.utils.get_total_norm(gradients).to(device).square()
        dist.all_reduce(squared, group=stages)
        torch.nn.utils.clip_grads_with_norm_(ours, step.clip_norm, squared.sqrt())
    if step.clip_value is not None:
        torch.nn.utils.clip_grad_value_(ours, step.clip_value)


def card() -> torch.device:
    """The planned card of this process, which the plan numbers through all nodes."""
    name = json.loads(Path(__file__).with_name("plan.json").read_text())["devices"][dist.get_rank()]
    return torch.device("cuda", int(name.partition(":")[2]) % torch.cuda.device_count())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", help="FILE.py:FUNCTION")
    parser.add_argument("--steps", type=int, default=1)
    arguments, cuda = parser.parse_args(), torch.cuda.is_available()
    path, _, function = arguments.step.rpartition(":")
    dist.init_process_group("nccl" if cuda else "gloo")
    device = card() if cuda else torch.device("cpu")
    if losses := train(runpy.run_path(path)[function](), arguments.steps, device):
        print("losses of micro-batches:", *losses)
    dist.destroy_process_group()
