"""A device's program compiled to one Python function without branches. It frees each value after its last use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import monotonic_ns
from typing import Any, Protocol, assert_never, runtime_checkable

import torch
from torch import Tensor

from gnnplace.execution.torch.program import DeviceProgram, Message, OpRun, Receive, Send, Signal
from gnnplace.execution.torch.values import Node, is_random, turned
from gnnplace.frontends.torch.calls import call_of
from gnnplace.frontends.torch.strided import from_its_start

Times = tuple[list[Any], list[Any]]


@runtime_checkable
class Transport(Protocol):
    """The way of messages and signals between devices: functions that programs call, each once a step."""

    def sender(self, message: Message) -> Callable[[Tensor], None]:
        """A function that sends a value."""
        ...

    def receiver(self, message: Message) -> Callable[[], Tensor]:
        """A function that waits for a value and returns it."""
        ...

    def raiser(self, signal: Signal) -> Callable[[], None]:
        """A function that raises a signal."""
        ...

    def waiter(self, signal: Signal) -> Callable[[], None]:
        """A function that waits for a signal."""
        ...


def compiled(
    program: DeviceProgram,
    held: Mapping[Node, Tensor],
    transport: Transport,
    device: torch.device,
    kept: Mapping[Node, Callable[[Tensor], object]],
    seeded: Callable[[int], AbstractContextManager[None]],
    times: Times | None = None,
    now: Callable[[], Any] = monotonic_ns,
) -> Callable[[], None]:
    """The function that runs a step of the program.

    `held` are the values of `program.held`. For each node that this device computes or holds, the function in `kept`
    receives the value and copies it. A random op runs within `seeded(op)`. `times` are two lists with an element for
    each op of the graph and each message of the program (`Message.mark`): the step writes `now()` at the start and the
    end of each into them.
    """
    bound = {"now": now, "seeded": seeded} | ({} if times is None else {"started": times[0], "ended": times[1]})
    return _Code(program, held, transport, device, kept, bound, times is not None).function()


class _Code:
    """The source of a program, and the objects that its names are bound to."""

    def __init__(
        self,
        program: DeviceProgram,
        held: Mapping[Node, Tensor],
        transport: Transport,
        device: torch.device,
        kept: Mapping[Node, Callable[[Tensor], object]],
        bound: dict[str, Any],
        timed: bool,
    ) -> None:
        self._program, self._transport, self._device, self._kept, self._timed = program, transport, device, kept, timed
        self._names: dict[Node, str] = {}
        self._bound = bound
        for node in program.held:
            self._names[node] = self._bind("held", held[node])

    def function(self) -> Callable[[], None]:
        """Compiles the lines of all instructions."""
        last = self._last_uses()
        lines: list[str] = []
        for place, instruction in enumerate(self._program.instructions):
            lines += self._lines(instruction)
            if isinstance(instruction, OpRun):
                # at once: a message may share its memory later
                lines += self._keep((instruction.node, *instruction.picks))
            if done := [self._names[node] for node in last.get(place, ())]:
                lines.append(f"del {', '.join(done)}")
        lines += self._keep(self._program.held) or ["pass"]
        source = "def step():\n" + "".join(f"    {line}\n" for line in lines)
        exec(compile(source, f"<program of device {self._program.device}>", "exec"), self._bound)
        step: Callable[[], None] = self._bound["step"]
        return step

    def _keep(self, nodes: Sequence[Node]) -> list[str]:
        return [f"{self._bind('keep', self._kept[node])}({self._names[node]})" for node in nodes if node in self._kept]

    def _lines(self, instruction: OpRun | Send | Receive) -> list[str]:
        match instruction:
            case OpRun():
                return self._call(instruction)
            case Send(what):
                if isinstance(what, Signal):
                    return [f"{self._bind('raise', self._transport.raiser(what))}()"]
                value = self._turned(what, self._names[what.node])
                return self._marked(what.mark, [f"{self._bind('send', self._transport.sender(what))}({value})"])
            case Receive(what):
                if isinstance(what, Signal):
                    return [f"{self._bind('await', self._transport.waiter(what))}()"]
                value = self._turned(what, f"{self._bind('receive', self._transport.receiver(what))}()")
                name = self._name(what.node)
                is_held = what.node in self._program.held  # running state that comes back
                return self._marked(what.mark, [f"{name}.copy_({value})" if is_held else f"{name} = {value}"])
            case _:
                assert_never(instruction)

    def _turned(self, message: Message, value: str) -> str:
        turn = turned(message.node)
        return value if turn is None else f"{self._bind('turn', turn)}({value})"

    def _call(self, call: OpRun) -> list[str]:
        node = call.node
        lines = list(map(self._run, (*call.first, node)))
        if is_random(node):
            lines = [f"with seeded({call.op}):", *(f"    {line}" for line in lines)]
        lines += [f"{self._name(pick)} = {self._names[node]}[{pick.args[1]}]" for pick in call.picks]
        if call.picks:
            lines.append(f"{self._names[node]} = None")
        return self._marked(call.op, lines)

    def _marked(self, mark: int, lines: list[str]) -> list[str]:
        return [f"started[{mark}] = now()", *lines, f"ended[{mark}] = now()"] if self._timed else lines

    def _run(self, node: Node) -> str:
        arguments = [self._expression(argument) for argument in node.args]
        named = {key: self._device if key == "device" else value for key, value in node.kwargs.items()}
        if named:
            arguments.append(
                f"**{{{', '.join(f'{key!r}: {self._expression(value)}' for key, value in named.items())}}}"
            )
        return f"{self._name(node)} = {self._bind('op', _function(node))}({', '.join(arguments)})"

    def _expression(self, value: Any) -> str:
        match value:
            case torch.fx.Node():
                return self._names[value]
            case list():
                return f"[{', '.join(map(self._expression, value))}]"
            case tuple():
                return f"({''.join(self._expression(item) + ', ' for item in value)})"
            case None | bool() | int():
                return repr(value)
            case _:
                return self._bind("constant", value)

    def _name(self, node: Node) -> str:
        return self._names.setdefault(node, f"value_{len(self._names)}")

    def _bind(self, stem: str, value: Any) -> str:
        name = f"{stem}_{len(self._bound)}"
        self._bound[name] = value
        return name

    def _last_uses(self) -> dict[int, list[Node]]:
        """The values that each instruction uses for the last time, by its index. An unused value is freed at once."""
        last: dict[Node, int] = {}
        for place, instruction in enumerate(self._program.instructions):
            last |= dict.fromkeys(_touched(instruction), place)
        places: dict[int, list[Node]] = {}
        for node, place in last.items():
            if node not in self._names:  # held values stay
                places.setdefault(place, []).append(node)
        return places


def _function(node: Node) -> object:
    """The function that a node calls."""
    call = call_of(node)
    return node.target if call is None else from_its_start(call)


def _touched(instruction: OpRun | Send | Receive) -> Sequence[Node]:
    """The nodes whose values an instruction reads or makes."""
    match instruction:
        case OpRun(_, first, node, picks):
            return (*first, *instruction.inputs, *picks, *(() if picks else (node,)))
        case Send(Message() as message) | Receive(Message() as message):
            return (message.node,)
        case _:
            return ()
