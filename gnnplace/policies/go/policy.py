"""GO (Zhou et al., "Transferable Graph Optimizers for ML Compilers", NeurIPS 2020, arXiv 2010.12438).

With placement alone it is GDP.

GraphSAGE embeds every op (equations 3 and 4). Layers of segment-recurrent attention, whose features that embedding
modulates (sections 4.2 and 4.3), and a head for each task (equations 5 and 6) decide for all ops at once, without
groups. All is decided `iterations` times; each iteration reads the decisions of the one before (section 3, equation 2).

The supplement with the sizes is not public. What the paper leaves open, decided here:

- *Neighbours*, *what joins heads*: see `op_graph.py` and `task_chain.py`. The GNN of the other policies may take the
  place of GraphSAGE (knob `neighbours`).
- *Features*: kind, output shapes and the number of inputs. Modulation stands before each layer, as the equation has it.
- *State embedding*: `LastActions` in `task_chain.py`; a linear map brings it and the op's embedding back to the width.
- *Colocation*: a group gets one device, by the mean of its ops' logits. In the paper a split group is invalid and costs
  a sample.
- *Priorities*: within a level ops run as under the knob `schedule`. The paper's queue is `fifo`.
- *Fusion*: levels are the order in which ops try to be fused (`priority_levels.py`), with ops on the same device.
- *Reward*: of the last iteration's placement, for every iteration. The critic is a separate network.
- *The ratio* of PPO is one a decision: a ratio of 80,000 decisions would be 0 or infinite (knob `algorithm.ratio`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gnnplace.knobs import MOST_LAYERS, MOST_OF_A_STEP, MOST_WIDTH, between
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.encoders.columns import CostColumns, PaperColumns
from gnnplace.policies.encoders.encoder import ShowsOwn, by_switches
from gnnplace.policies.encoders.gnn import UnitGraph
from gnnplace.policies.encoders.kinds import CANONICAL, Vocabulary, vocabulary
from gnnplace.policies.go.op_graph import OpGraph, single_ops
from gnnplace.policies.go.priority_levels import levels_of, list_placement, proposed
from gnnplace.policies.go.segments import ModulatedSegments, SegmentAttention
from gnnplace.policies.go.task_chain import LastActions, TaskChain, TaskCritic, mean_of_units
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import ProblemConstants, devices_of_units, named_devices, require_devices
from gnnplace.policies.symmetry import by_first_use
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.schedules.priorities import priorities
from gnnplace.units.units import Units, UnitsName, allowed, units

TaskName = Literal["fusion", "placement", "scheduling"]
TASKS: tuple[TaskName, ...] = ("fusion", "placement", "scheduling")  # in the order of the chain of heads (figure 4)
ENCODERS = by_switches("sage")


@dataclass(frozen=True)
class GOConfig(PolicyConfig):
    """GO (Zhou et al., NeurIPS 2020): GraphSAGE and modulated segment-recurrent attention decide for all ops at once.

    Args:
        kind: names this policy
        tasks: what is decided, in this order: "fusion" (in which order ops are fused), "placement", "scheduling"
            (priorities of ops)
        features: what ops are embedded from: "paper" = kind and output shapes; "costs" = times, memory, slack, place in
            the step
        neighbours: how they enter; "sage" = by GraphSAGE, as in the paper; "messages" = by the GNN of the other
            policies
        kinds: with the paper's features; "own" = the 200 most frequent of the training graphs; "canonical" = those all
            frameworks share
        rounds: rounds of GraphSAGE, or of messages
        width: width of embeddings
        state: width of the embedding of the last iteration's actions
        layers: layers of attention; 0 = no attention anywhere, an ablation
        heads: heads of attention; they divide the width
        segment: ops of a segment, which attends to itself and to the segment before it
        hidden: width of the layers' hidden layer
        modulation: whether an op's embedding gates the features of every layer; off = an ablation
        iterations: how often all is decided, each time with the last decisions in sight
        levels: levels of priority, with "scheduling" and with "fusion"
        units: what is placed together
        schedule: how ops are ordered within devices; with "scheduling", ops of one level
    """

    kind: Literal["go"] = "go"
    tasks: tuple[TaskName, ...] = ("placement",)
    features: Literal["paper", "costs"] = "paper"
    neighbours: Literal["sage", "messages"] = "sage"
    kinds: Literal["own", "canonical"] = "own"
    rounds: int = 2
    width: int = 128
    state: int = 16
    layers: int = 2
    heads: int = 4
    segment: int = 64
    hidden: int = 128
    modulation: bool = True
    iterations: int = 2
    levels: int = 16
    units: UnitsName = "ops"
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        between(1, MOST_WIDTH, "policy.", width=self.width, state=self.state, heads=self.heads, hidden=self.hidden)
        between(1, MOST_OF_A_STEP, "policy.", segment=self.segment, iterations=self.iterations)
        between(1, MOST_LAYERS, "policy.", rounds=self.rounds)
        between(0, MOST_LAYERS, "policy.", layers=self.layers)
        between(2, MOST_WIDTH, "policy.", levels=self.levels)
        if not self.tasks or self.tasks != tuple(task for task in TASKS if task in self.tasks):
            raise ValueError(
                f"policy.tasks: {list(self.tasks)} is not one or more of {', '.join(TASKS)}, each once and in this "
                "order"
            )
        if self.width % self.heads:
            raise ValueError(f"policy.heads: {self.heads} heads don't divide a width of {self.width}")
        self.require_rule()

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        return ENCODERS

    @property
    def proposes(self) -> Schedule:
        return "given" if "scheduling" in self.tasks else self.schedule

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """Named devices and own kinds.

        Raises ValueError if clusters differ in their number of devices, and ops are placed.
        """
        devices = named_devices(problems, self.kind) if "placement" in self.tasks else 0
        own_kinds = self.features == "paper" and self.kinds == "own"
        return PolicyShape(devices, vocabulary([problem.graph for problem in problems]).words if own_kinds else ())

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> GO:
        kinds = CANONICAL if self.kinds == "canonical" else Vocabulary(shape.kinds)
        columns = PaperColumns(kinds) if self.features == "paper" else CostColumns()
        options: dict[TaskName, int] = {"fusion": self.levels, "placement": shape.devices, "scheduling": self.levels}
        last = SegmentAttention(self.width, heads=self.heads, segment=self.segment) if self.layers else None
        embeds = OpGraph if self.neighbours == "sage" else UnitGraph
        return GO(
            graph=embeds(columns, width=self.width, rounds=self.rounds),
            trunk=ModulatedSegments(
                self.width, layers=self.layers, heads=self.heads, segment=self.segment, hidden=self.hidden,
                modulation=self.modulation
            ),
            chain=TaskChain({task: options[task] for task in self.tasks}, width=self.width, attention=last),
            state=self.state, iterations=self.iterations, units=self.units, schedule=self.schedule,
        )  # fmt: skip


class GOState(NamedTuple):
    """The constants of one problem, and where an episode stands.

    Ops are in topological order: `position[i]` is where op i stands, `unit[p]` the unit of the op at p. `device` is the
    given one of every unit, where ops are not placed. `before` are the actions of the last iteration, by task.
    """

    samples: int
    units: Units
    position: Int[Tensor, " ops"]
    unit: Int[Tensor, " ops"]
    graph: Any
    allowed: Bool[Tensor, "units devices"]
    device: Int[Tensor, " units"] | None
    problem: Problem | None
    iteration: int
    before: dict[str, Int[Tensor, "samples ops"]]


class GO(nn.Module):
    """Decides for every op at once, several times.

    Reads the columns of single ops (`encoders/columns.py`) and the edges between them, and in each iteration the
    actions of the one before.

    Decides, in each of the `iterations` steps of an episode, by task: "fuse" (fusion: an option a level, the highest is
    fused first, for each op in topological order, `Int[samples ops]`), "device" (placement: an option a device for each
    unit, `Int[samples units]`, among those where all its ops may stand) and "priority" (scheduling: as "fuse", the
    highest goes first). Given the graph and the last iteration's actions all decisions are independent. Each step
    proposes full placements, with priorities where it schedules; the last one's are evaluated. If it does not place, a
    list scheduler does (`priority_levels.list_placement`); in the paper an expert does.

    Learns from the log-probabilities of its decisions; it can imitate a placement (`choices`). Its critic (`value`) has
    weights of its own. If it places, its weights are for one number of devices.
    """

    def __init__(
        self, *, graph: ShowsOwn, trunk: ModulatedSegments, chain: TaskChain, state: int, iterations: int = 1,
        units: UnitsName = "ops", schedule: Schedule = "critical-path",
    ) -> None:  # fmt: skip
        super().__init__()
        self.graph, self.trunk, self.chain = graph, trunk, chain
        self.iterations, self.units, self.schedule = iterations, units, schedule
        self.before = LastActions(chain.actions, state)
        self.join = nn.Linear(graph.width + state, graph.width)
        self.critic = TaskCritic(graph.own_width, chain.actions, graph.width)
        self._constants = ProblemConstants(self._state)

    def reset(self, problem: Problem, samples: int) -> GOState:
        """Raises ValueError if the policy has learned to place on another number of devices."""
        require_devices(problem, self.chain.actions.get("placement", problem.num_devices))
        return self._constants.of(problem, self)._replace(samples=samples, problem=problem)

    def _state(self, problem: Problem) -> GOState:
        groups, ops = units(problem.graph, self.units), single_ops(problem.graph)
        position = torch.from_numpy(ops.unit.astype(np.int64))
        unit = torch.from_numpy(groups.unit[problem.graph.order]).long()
        device = None if "placement" in self.chain.actions else torch.from_numpy(list_placement(problem, groups))
        legal = torch.from_numpy(allowed(problem, groups))
        return GOState(1, groups, position, unit, self.graph.constants(problem, ops), legal, device, None, 0, {})

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        self.graph.widen_ranges([self.reset(problem, 1).graph for problem in problems])

    def step(
        self, state: GOState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], GOState | None]:
        """One iteration: every task for every op."""
        embedded = self.graph(state.graph)
        logits = self.chain(self.trunk(embedded, self._rows(state, embedded)))
        actions = {}
        if "fusion" in logits:
            actions["fusion"] = choose("fuse", logits["fusion"].expand(state.samples, -1, -1))
        if state.device is None:
            of_units = mean_of_units(logits["placement"], state.unit)
            device = choose("device", of_units.expand(state.samples, -1, -1), state.allowed)
            actions["placement"] = device[:, state.unit]
        else:
            device = state.device.expand(state.samples, -1)
        if "scheduling" in logits:
            actions["scheduling"] = choose("priority", logits["scheduling"].expand(state.samples, -1, -1))
        iteration = state.iteration + 1
        following = None if iteration == self.iterations else state._replace(iteration=iteration, before=actions)
        assert state.problem is not None
        levels = {
            task: action[:, state.position].cpu().numpy() for task, action in actions.items() if task != "placement"
        }
        return proposed(state.problem, state.units, device, levels, self.schedule), following

    def value(self, state: GOState) -> Float[Tensor, " samples"]:
        return self.critic(self.graph.own(state.graph), state.before).expand(state.samples)

    def _rows(self, state: GOState, embedded: Float[Tensor, "ops width"]) -> Float[Tensor, "leading ops width"]:
        """The input of the first layer: each op's embedding and its last actions."""
        acted = self.before(state.before, len(embedded))
        return self.join(torch.cat([embedded.expand(len(acted), -1, -1), acted], dim=-1))

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Int[Tensor, "1 *shape"]]:
        """The devices with most of each unit's work, and levels with equally many ops each.

        Interchangeable devices are renamed by first use.

        The levels of fusion are equal: those that led to a given fusion can't be found.
        """
        state = self.reset(problem, 1)
        actions = {"fuse": np.zeros(problem.num_ops, np.int64)} if "fusion" in self.chain.actions else {}
        if "placement" in self.chain.actions:
            actions["device"] = by_first_use(problem, devices_of_units(problem, state.units, placement))
        if "scheduling" in self.chain.actions:
            actions["priority"] = levels_of(priorities(problem, placement), self.chain.actions["scheduling"])[
                problem.graph.order
            ]
        return {name: torch.from_numpy(choice)[None].to(state.unit.device) for name, choice in actions.items()}
