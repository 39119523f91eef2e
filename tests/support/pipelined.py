"""Steps of a pipeline of PyTorch in processes of this machine: one stage a process, joined by gloo."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
from support import exported_networks
from support.small_networks import network
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline
from torch.nn.functional import mse_loss

MICRO_BATCHES = 2
Gradients = dict[str, Tensor]


def target(module: nn.Module, x: Tensor) -> Tensor:
    """What outputs are compared with."""
    with torch.no_grad():
        return torch.zeros_like(module(x))


def undivided(name: str) -> tuple[Tensor, list[Tensor], Gradients]:
    """The output of a network, the loss of each micro-batch, and the gradients of their mean."""
    module, x = network(name)
    losses = [mse_loss(module(part), target(module, part)) for part in x.chunk(MICRO_BATCHES)]
    torch.stack(losses).mean().backward()
    gradients = {key: parameter.grad for key, parameter in module.named_parameters() if parameter.grad is not None}
    return module(x).detach(), [loss.detach() for loss in losses], gradients


def stage(rank: int, name: str, split_spec: dict[str, str], folder: str) -> None:
    """One process: runs its stage for a step of ScheduleGPipe, and saves what it found in the folder, under its rank."""
    torch.set_num_threads(1)
    size = len(split_spec) + 1
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=600))
    module, x = network(name)
    parts = {key: SplitPoint[at] for key, at in split_spec.items()}
    pipe = pipeline(module, mb_args=(x.chunk(MICRO_BATCHES)[0],), split_spec=parts)
    assert pipe.num_stages == size
    schedule = ScheduleGPipe(pipe.build_stage(rank, torch.device("cpu")), MICRO_BATCHES, loss_fn=mse_loss)
    losses: list[Tensor] = []
    wanted = target(module, x)
    output = schedule.step(*([x] if rank == 0 else []), **({"target": wanted, "losses": losses} if rank == size - 1 else {}))
    gradients = {key: parameter.grad for key, parameter in pipe.get_stage_module(rank).named_parameters()}
    torch.save((output, [loss.detach() for loss in losses], gradients), Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()


def swept(rank: int, specs: list[tuple[str, dict[str, str]]], folder: str) -> None:
    """One of two processes: runs its stage of each network by its split_spec, and saves what went wrong under its rank."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=600))
    faults: list[str | None] = []
    for name, spec in specs:
        make, inputs = exported_networks.NETWORKS[name]
        torch.manual_seed(0)
        try:
            micro = tuple(tensor.chunk(MICRO_BATCHES)[0] for tensor in inputs())
            pipe = pipeline(make(), mb_args=micro, split_spec={key: SplitPoint[at] for key, at in spec.items()})
            schedule = ScheduleGPipe(pipe.build_stage(rank, torch.device("cpu")), MICRO_BATCHES, loss_fn=squares)
            schedule.step(*(inputs() if rank == 0 else ()), **({"target": torch.zeros(4)} if rank == 1 else {}))
            faults.append(None)
        except Exception as error:
            faults.append(f"{name}: {type(error).__name__}: {error}"[:300])
            break  # the other process waits for what does not come
    torch.save(faults, Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()


def squares(made: Tensor | tuple[Tensor, ...], _: Tensor) -> Tensor:
    return torch.utils._pytree.tree_leaves(made)[0].square().mean()
