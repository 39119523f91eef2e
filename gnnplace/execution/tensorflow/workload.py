"""A TensorFlow training step as a `Workload`: built once, started on any plan with the same variables and inputs.

TensorFlow runs the computation graph op by op (see graph.py); each start checks that in its first step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import tensorflow as tf

from gnnplace.cluster import Device
from gnnplace.costs.measured import LinkSample
from gnnplace.execution.control_edges import control_messages
from gnnplace.execution.tensorflow.graph import EXTRA, Runnable, placed, runnable
from gnnplace.execution.tensorflow.in_place import in_place
from gnnplace.execution.tensorflow.links import profile_link
from gnnplace.execution.tensorflow.placed import PlacedTensorFlowStep
from gnnplace.execution.tensorflow.servers import Template, layout, room_bytes
from gnnplace.execution.tensorflow.step_links import links_in_steps
from gnnplace.execution.workload import ExecutionPlan, Outputs, refuse
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.frontends.tensorflow.pruned import PrunedStep, prune
from gnnplace.frontends.tensorflow.step import Machine, TensorFlowStep
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores
from gnnplace.schedules.in_order import in_order
from gnnplace.transformations.parallelism import Parallelism

v1 = tf.compat.v1
log = logging.getLogger(__name__)


@dataclass(eq=False)
class TensorFlowWorkload:
    """The step that `spec` builds, on this `machine`. `close` ends the process that forks its servers."""

    spec: TensorFlowStep
    machine: Machine = field(default_factory=Machine)
    template: Template = field(default_factory=Template)

    def __post_init__(self) -> None:
        with tf.Graph().as_default() as self._built:
            v1.set_random_seed(self.spec.seed)
            self._loss, self._train = self.spec.build()
            self._variables = {variable.handle.op.name: variable for variable in v1.global_variables()}
        if self._loss.shape.rank != 0:
            raise ValueError(f"loss {self._loss.name!r}: a loss is one number, not of shape {self._loss.shape}")
        if strange := [op.name for op in self._step.ops if op.type == "VarHandleOp" and op.name not in self._variables]:
            raise ValueError(
                f"variable {strange[0]!r}: not a global variable of the graph, so that nothing says where it starts"
            )
        if self.differences:
            log.warning(
                "%s: sent tensors whose shapes no rule knows before the step: %s",
                self.spec.name,
                ", ".join(self.differences),
            )

    @cached_property
    def graph(self) -> ComputationGraph:
        """The graph of the step. Ops have TensorFlow's names."""
        return read_step(self._built, [self._loss.name, self._train.name], self.spec.name, self.spec.blocks)

    @property
    def differences(self) -> tuple[str, ...]:
        """The ops with a data edge in the step that is a control edge in `graph`."""
        return self._runnable.differences

    def start(self, plan: ExecutionPlan) -> PlacedTensorFlowStep:
        """Places the step, starts servers, loads variables, and runs and checks the first step."""
        if plan.form is not None and plan.form.micro_batches > 1:
            raise MeasurementError("unsupported", "micro_batches: a step of TensorFlow runs one; PyTorch's run several")
        refuse(self.graph, plan)
        servers = layout(plan.devices, self.machine)
        graph = self._placed(plan, servers.devices)
        started = self.template.start(servers.orders)
        step = PlacedTensorFlowStep(
            self.graph, plan, servers.devices, self._loss.name, self._train.name, graph, self.template, started
        )
        try:
            step.load(self._start_values)
            step.check(self._more_edges)
        except BaseException:
            step.close()
            raise
        return step

    def as_run(self, plan: ExecutionPlan) -> ComputationGraph:
        """The graph in the order of the plan, with ops that overwrite inputs and control edges that are messages.

        The outputs of constants, and of placeholders, which are constants here, are kept for the whole step.
        """
        constant = self.graph.kind.among(("Const", "Placeholder"))[self.graph.output_op]
        graph = replace(self.graph, output_is_result=self.graph.output_is_result | constant)
        for transform in (in_place, control_messages, in_order):
            graph = transform(graph, plan.device, plan.order)
        return graph

    def unplaced(self, steps: int, kind: str = "cpu", form: Parallelism | None = None) -> tuple[Outputs, str]:
        """The same steps of the built graph in an ordinary session of this process, with TensorFlow's optimisations.

        TensorFlow chooses the devices; `kind` is ignored, and a step has one micro-batch.
        """
        used = self._used
        feed = {f"{name}:0": value for name, value in self._inputs.items()}
        with v1.Session(graph=self._built) as session:
            for name, variable in used.items():
                session.run(variable.initializer, {variable.initializer.inputs[1]: self._start_values[name]})
            losses = [float(session.run([self._loss, self._train], feed)[0]) for _ in range(steps)]
            values = session.run(used)
        words = f"TensorFlow {tf.__version__}, one process, {len(usable_cores())} cores, its own optimisations"
        return Outputs(tuple(losses), values), words

    def links(self, devices: tuple[Device, Device]) -> tuple[LinkSample, ...]:
        """Transfers from the first device to the second: when a single one arrives, and how long it occupies each side.

        Between cores these are times within the step, if it sends anything.
        """
        samples = profile_link(devices, self.machine, self.template)
        if any(device.kind != "cpu" for device in devices):
            return samples
        return links_in_steps(self.graph, self.start, devices, samples)

    def close(self) -> None:
        """Ends the template, and its servers with it."""
        self.template.close()

    @cached_property
    def _step(self) -> PrunedStep:
        return prune(self._built, [self._loss.name, self._train.name])

    @cached_property
    def _runnable(self) -> Runnable:
        return runnable(self._step, self._inputs)

    @property
    def _used(self) -> dict[str, tf.Variable]:
        return {op.name: self._variables[op.name] for op in self._step.ops if op.type == "VarHandleOp"}

    @property
    def _more_edges(self) -> tuple[tuple[int, int, int], ...]:
        index = self._step.index
        return tuple(
            (index[tensor.op.name], tensor.value_index, index[name])
            for name in self.differences for tensor in self._built.get_operation_by_name(name).inputs
        )  # fmt: skip

    @cached_property
    def _inputs(self) -> Mapping[str, np.ndarray]:
        """The random values of placeholders, drawn in their order from the seed."""
        draw = np.random.default_rng(self.spec.seed)
        return {op.name: self._draw(op, draw) for op in self._step.ops if op.type == "Placeholder"}

    def _draw(self, op: tf.Operation, draw: np.random.Generator) -> np.ndarray:
        shape, dtype = op.outputs[0].shape.as_list(), op.outputs[0].dtype
        if dtype.is_floating:
            return draw.standard_normal(shape, dtype=np.float32).astype(dtype.as_numpy_dtype)
        if dtype.is_integer or dtype.is_bool:
            return draw.integers(0, self.spec.below.get(op.name, 2), shape).astype(dtype.as_numpy_dtype)
        raise ValueError(f"placeholder {op.name!r}: no rule fills {dtype.name}; use floats, integers or booleans")

    @cached_property
    def _start_values(self) -> dict[str, np.ndarray]:
        """The initial value of each variable: its initialiser, run unplaced with the seed of the graph."""
        place_pruned = v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))
        with v1.Session(graph=self._built, config=place_pruned) as session:
            session.run([variable.initializer for variable in self._variables.values()])
            values: dict[str, np.ndarray] = session.run(self._used)
        return values

    def _placed(self, plan: ExecutionPlan, devices: tuple[str, ...]) -> tf.compat.v1.GraphDef:
        """The placed step, with nodes that reserve memory and that load and read variables."""
        result = placed(self._runnable, self.graph, plan, devices)
        place = {name: devices[d] for name, d in zip(self.graph.op_names, plan.device.tolist(), strict=True)}
        extra = tf.Graph()
        with extra.as_default():
            for op in self._step.ops:
                if op.type == "VarHandleOp":
                    _load_and_read(op, place[op.name])
            for d, room in enumerate(room_bytes(self.graph, plan)):
                with tf.device(devices[d]):
                    tf.raw_ops.Empty(shape=[-(-room // 2**20), 2**20], dtype=tf.uint8, name=f"{EXTRA}/room/{d}")
        result.node.extend(extra.as_graph_def().node)
        return result


def _load_and_read(op: tf.Operation, device: str) -> None:
    """Nodes that assign a fed value to a variable and that read it.

    They have a handle of their own, because the step's handle has its turn in the schedule.
    """
    dtype, shape, shared = op.get_attr("dtype"), op.get_attr("shape"), op.get_attr("shared_name").decode() or op.name
    with tf.device(device):
        handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=shared, name=f"{EXTRA}/handle/{op.name}")
        value = v1.placeholder(dtype, shape, f"{EXTRA}/value/{op.name}")
        tf.raw_ops.AssignVariableOp(resource=handle, value=value, name=f"{EXTRA}/assign/{op.name}")
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype, name=f"{EXTRA}/read/{op.name}")
