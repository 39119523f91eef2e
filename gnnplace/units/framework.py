"""The framework that a graph's ops are of, as their kinds say it."""

from __future__ import annotations

from gnnplace.graph import ComputationGraph

HELD = frozenset(("parameter", "buffer", "read", "input", "constant"))
CALLED = ("aten.", "optim.")


def of_pytorch(graph: ComputationGraph) -> bool:
    """Whether all ops are such as PyTorch's front-end makes: calls of ATen and updates, and what they read.

    >>> import gnnplace as gp
    >>> [of_pytorch(gp.problem(name, cluster="k40-2").graph) for name in ("squeezenet", "vgg-16", "resnet-50-openvino")]
    [True, False, False]
    """
    called = [kind for kind in graph.kind.values if kind not in HELD]
    return bool(called) and all(kind.startswith(CALLED) for kind in called)
