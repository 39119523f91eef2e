"""Device placement for neural-network training steps: the device of each op, the step time and a lower bound for it.

    >>> import gnnplace as gp
    >>> problem = gp.problem("dlrm", cluster="k40-2")
    >>> gp.simulate(problem, gp.place(problem, "heft")).infeasible is None
    True

All names are imported on first use: `import gnnplace` itself takes no time and imports no framework.
"""

from importlib import import_module

TYPE_CHECKING = False  # importing it from typing would precede the change of the import path in `__main__`
if TYPE_CHECKING:
    from gnnplace.api import (
        compare,
        explain,
        export,
        lower_bound,
        place,
        problem,
        repair,
        shortage,
        simulate,
        write_report,
    )
    from gnnplace.baselines.searching.budget import Budget
    from gnnplace.cluster import Cluster, Device, Link
    from gnnplace.constraints import Constrained, Constraint, constrained
    from gnnplace.formats.documents import load, save
    from gnnplace.frontends.published.networkx import from_networkx, to_networkx
    from gnnplace.frontends.tensorflow.function import TensorFlowFunction
    from gnnplace.frontends.tensorflow.keras import KerasModel
    from gnnplace.frontends.tensorflow.step import TensorFlowStep
    from gnnplace.frontends.torch.step import TorchInference, TorchStep
    from gnnplace.graph import ComputationGraph, Op, Output
    from gnnplace.isolation.outcome import MeasurementError
    from gnnplace.placement import Placement
    from gnnplace.plan import Plan
    from gnnplace.portfolio.candidates import Candidate, table
    from gnnplace.problems import Problem
    from gnnplace.result import StepResult
    from gnnplace.runs import load_policy, measure, placed, train
    from gnnplace.units.granularity import granularity
    from gnnplace.units.modules import Modules, modules
    from gnnplace.version import VERSION as __version__

# The names of the API by module. The imports above repeat them for type checkers and editors.
_WHERE = {
    "gnnplace.api": (
        "compare",
        "explain",
        "export",
        "lower_bound",
        "place",
        "problem",
        "repair",
        "shortage",
        "simulate",
        "write_report",
    ),
    "gnnplace.baselines.searching.budget": ("Budget",),
    "gnnplace.portfolio.candidates": ("Candidate", "table"),
    "gnnplace.cluster": ("Cluster", "Device", "Link"),
    "gnnplace.constraints": ("Constrained", "Constraint", "constrained"),
    "gnnplace.formats.documents": ("load", "save"),
    "gnnplace.frontends.published.networkx": ("from_networkx", "to_networkx"),
    "gnnplace.frontends.tensorflow.function": ("TensorFlowFunction",),
    "gnnplace.frontends.tensorflow.keras": ("KerasModel",),
    "gnnplace.frontends.tensorflow.step": ("TensorFlowStep",),
    "gnnplace.frontends.torch.step": ("TorchInference", "TorchStep"),
    "gnnplace.graph": ("ComputationGraph", "Op", "Output"),
    "gnnplace.isolation.outcome": ("MeasurementError",),
    "gnnplace.placement": ("Placement",),
    "gnnplace.plan": ("Plan",),
    "gnnplace.problems": ("Problem",),
    "gnnplace.result": ("StepResult",),
    "gnnplace.runs": ("load_policy", "measure", "placed", "train"),
    "gnnplace.units.granularity": ("granularity",),
    "gnnplace.units.modules": ("Modules", "modules"),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("gnnplace.version").VERSION
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gnnplace' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
