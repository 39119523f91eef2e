"""Trains by planned data parallelism, DDP or FSDP2: torchrun --nproc-per-node 4 run.py net.py:step [--steps 10].

`net.py:step` is the function that was placed; it returns a `gnnplace.TorchStep`: module, loss, batch, optimisers.
"""

import argparse
import json
import runpy
from contextlib import nullcontext
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


class Wrapped:
    """A module that calls another, which wraps it."""

    def __init__(self, module: torch.nn.Module, call: torch.nn.Module) -> None:
        self.module, self.call = module, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


def train(step: Any, steps: int, device: torch.device) -> list[float]:
    """Trains this process's share of the micro-batches; returns their last losses."""
    plan = json.loads(Path(__file__).with_name("plan.json").read_text())
    shares, rank = plan["shares"], dist.get_rank()
    begin, parts = sum(shares[:rank]), cycle(step.batch.split(step.batch.tensors))  # a step of one is each micro-batch
    mine = [[each.to(device) for each in tensors] for tensors in islice(parts, begin, begin + shares[rank])]
    scale, module = len(shares) / sum(shares), step.module.to(device)  # processes average gradients
    model, optimizers = module, step.built_optimizers
    if plan["wrap"] == "ddp":
        model = DistributedDataParallel(module)
    else:
        replicas_and_shards = init_device_mesh(device.type, tuple(plan["mesh"]), mesh_dim_names=("replica", "shard"))
        mesh = replicas_and_shards if plan["mesh"][0] > 1 else replicas_and_shards["shard"]
        name_of = {id(parameter): name for name, parameter in module.named_parameters()}
        named = [
            [{**each, "params": [name_of[id(p)] for p in each["params"]]} for each in o.param_groups]
            for o in optimizers
        ]
        for block in [*map(module.get_submodule, plan["blocks"]), module]:
            fully_shard(block, mesh=mesh, reshard_after_forward=plan["reshard_after_forward"])
        sharded = dict(module.named_parameters())
        groups = [[{**each, "params": [sharded[name] for name in each["params"]]} for each in some] for some in named]
        optimizers = [type(each)(some) for each, some in zip(optimizers, groups, strict=True)]
    for _ in range(steps):  # your batches in place of the example's, again and again
        losses = []
        for number, tensors in enumerate(mine):
            waits = plan["wrap"] == "ddp" and number + 1 < len(mine)
            with model.no_sync() if waits else nullcontext():
                losses.append(step.loss_of(Wrapped(module, model), tensors))
                (losses[-1] * scale).backward()
        trained = [each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]]
        if step.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(trained, step.clip_norm)
        if step.clip_value is not None:
            torch.nn.utils.clip_grad_value_(trained, step.clip_value, foreach=False)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return [each.item() for each in losses]


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
    losses = train(runpy.run_path(path)[function](), arguments.steps, device)
    print(f"losses of the micro-batches of process {dist.get_rank()}:", *losses)
    dist.destroy_process_group()
