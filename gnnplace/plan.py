"""A plan: a placement that knows its problem, and so its step, its explanation, its picture and its exports."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gnnplace.bounds.bounds import lower_bound
from gnnplace.caveats import caveats
from gnnplace.exports import targets
from gnnplace.exports.device_map import device_map
from gnnplace.formats import documents
from gnnplace.formats.documents import PathText
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.moves.situation import situation
from gnnplace.placement import Placement
from gnnplace.portfolio.alternatives import OF_BEST, described
from gnnplace.problems import Problem
from gnnplace.report import alternatives, beside, explanation, picture, step_report, step_words
from gnnplace.report.chain_words import stepped
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate

if TYPE_CHECKING:
    from gnnplace.portfolio.candidates import Candidate
    from gnnplace.report.explanation import Explanation, PartExplanation


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Placement):
    """A placement together with its problem. It is a `Placement`, so every function of placements accepts it.

    >>> import gnnplace as gp
    >>> plan = gp.place(gp.problem("dlrm", cluster="k40-2"), "heft")
    >>> plan.step.step_time_ns >= plan.bound_ns > 0
    True

    Attributes:
        problem: the problem that was placed, which may be another form of the one that was given
        alternatives: of a step of several micro-batches that `best` has placed, what people would do (DDP, FSDP,
            pipelines ...) and the plan itself among it, the least time for a micro-batch first
    """

    problem: Problem = field(kw_only=True)
    alternatives: tuple[Candidate, ...] = field(default=(), kw_only=True)

    def __repr__(self) -> str:
        """What was placed where, and its step time: `Plan(8 micro-batches of dlrm on k40-2, fifo, ...)`."""
        graph, step = self.problem.graph, self.step
        time = step.infeasible or step_words.for_each(graph, step.step_time_ns)
        return f"Plan({step_words.named(graph)} on {self.problem.cluster.name}, {self.schedule}, {time})"

    @classmethod
    def of(cls, problem: Problem, placement: Placement, alternatives: tuple[Candidate, ...] = ()) -> Plan:
        """The plan of any placement, of `gp.load` or a policy for example."""
        fields = placement.device, placement.schedule, placement.priority, placement.fusion
        return cls(*fields, problem=problem, alternatives=alternatives)

    @cached_property
    def step(self) -> StepResult:
        """The simulated step, with its timeline."""
        return simulate(self.problem, [self], timeline=True)[0]

    @property
    def bound_ns(self) -> int:
        """The lower bound in ns on every step of the problem; if the plan fuses ops, on every step of every fusion."""
        return lower_bound(self.problem, self.fusion is not None)

    @property
    def warnings(self) -> list[str]:
        """What makes the plan's numbers doubtful: ops whose flops no rule counts."""
        return caveats(self.problem.graph)

    @property
    def advice(self) -> str | None:
        """One line: the rule that is all one needs and how to run it, or why the plan is better than the best rule.

        None without `alternatives`.
        """
        among = described(self.alternatives, self.problem.cluster)
        return None if among is None else among.advice

    def beside(self) -> beside.Beside | None:
        """The plan beside the best of its `alternatives`: what devices do, what is sent, what stands elsewhere.

        None if no alternative fits.
        """
        for each in self.alternatives:
            if each.form is not None and each.step_time_ns is not None and not each.planner.startswith(OF_BEST):
                name = alternatives.WORDS.get(each.planner, each.planner)
                return beside.beside((self.problem, self), (each.form, each.placement), name)
        return None

    def device_map(self) -> dict[str, int | str]:
        """Module -> device, the `device_map` of accelerate and transformers; "" is the whole model.

        Raises ValueError if accelerate would not run the model as placed, and warns if that could not be tried: see
        `gp.export`.
        """
        return device_map(self.problem, self, partial(warnings.warn, stacklevel=3))

    def to_dataframe(self) -> pd.DataFrame:
        """One row for each op, or for each group of fused ops, in order of their start.

        Columns: `op`, `kind`, `module`, `layer`, `phase`, `device`; `start_ns`, `end_ns`; `slack_ns`, by how much the
        op could end later without a longer step, with the same order of ops and the same transfers; `chain_ns`, the
        time of the op and its transfers on the critical chain; `output_bytes` and `persistent_bytes`. Raises ValueError
        if the placement has no step.

            >>> import gnnplace as gp
            >>> table = gp.place(gp.problem("squeezenet", cluster="k40-2"), "gpu").to_dataframe()
            >>> table.groupby("device").op.count().to_dict(), int(table.slack_ns.min())
            ({'gpu:0': 315}, 0)
        """
        step = stepped(self.problem, self)
        graph, around = step.problem.graph, neighbourhood(step.problem)
        analysis = situation(step.problem, around, around.start(step.placement), step.result)
        names = step.problem.cluster.device_names
        table = pd.DataFrame(
            {
                "op": graph.op_names,
                "kind": [graph.kind[op] for op in range(graph.num_ops)],
                "module": [step.modules.names[module] for module in step.modules.module],
                "layer": [graph.layer[op] for op in range(graph.num_ops)],
                "phase": [graph.phase[op] for op in range(graph.num_ops)],
                "device": [names[device] for device in step.placement.device],
                "start_ns": step.timeline.start_ns,
                "end_ns": step.timeline.end_ns,
                "slack_ns": (analysis.step_ns - analysis.end_ns - analysis.tail_ns).astype(np.int64),
                "chain_ns": analysis.waited_ns.astype(np.int64),
                "output_bytes": np.bincount(graph.output_op, graph.output_bytes, graph.num_ops).astype(np.int64),
                "persistent_bytes": graph.persistent_bytes,
            }
        )
        return table.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True)

    def explain(self, part: str | None = None) -> Explanation | PartExplanation:
        """Explains the step, or a module or an op in it: see `gp.explain`."""
        if part is None:
            return explanation.explain(self.problem, self)
        return explanation.explain_part(self.problem, self, part)

    def picture(self, path: PathText) -> None:
        """Draws what each device runs and sends over time (.png, .svg, .pdf). Raises ValueError for another ending."""
        picture.write_picture(path, self.problem, self, self.step)

    def report(self, path: PathText, candidates: Sequence[Candidate] = ()) -> None:
        """Writes a page about the step, one HTML file: see `gp.write_report`."""
        rivals = [step_report.Rival(each.planner, each.result) for each in candidates]
        origin, among = (
            step_report.Origin("gnnplace.Plan.report(...)"),
            described(self.alternatives, self.problem.cluster),
        )
        step_report.write_step_report(path, self.problem, self, origin, rivals, among)

    def export(self, to: str, path: PathText) -> None:
        """Writes the plan in the format of another program: see `gp.export`."""
        targets.export(self.problem, self, to, path, say=partial(warnings.warn, stacklevel=4))

    def save(self, path: PathText) -> None:
        """Writes the placement as a document that `gp.load` reads."""
        documents.save(self, path, self.problem)
