"""Places your own PyTorch network on a machine: which layer runs where, how long the step takes, how far that is from the best."""

import torch
from torch import nn

import gnnplace as gp


class TwoTowers(nn.Module):
    """Two towers that meet at the end: something that two GPUs can share."""

    def __init__(self, width: int = 2048) -> None:
        super().__init__()
        self.left, self.right = (nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, 64)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.left(x) * self.right(x)).sum(1)


def loss(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(module(x), y)


def main() -> None:
    step = gp.TorchStep(TwoTowers(), loss, (torch.randn(256, 512), torch.randn(256)))
    problem = gp.problem(step, cluster="k40-2", name="two towers")
    placement = gp.place(problem, evaluations=500)
    found, alone = gp.simulate(problem, placement), gp.simulate(problem, gp.place(problem, "gpu"))
    assert found.step_time_ns is not None and alone.step_time_ns is not None
    print(f"one GPU: {alone.step_time_ns / 1e6:.3f} ms")
    print(f"placed:  {found.step_time_ns / 1e6:.3f} ms, at best {gp.lower_bound(problem) / 1e6:.3f} ms")
    for name, memory in zip(problem.cluster.device_names, found.peak_memory_bytes, strict=True):
        print(f"  {name}: {memory / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
