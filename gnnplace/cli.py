"""`gnnplace COMMAND ...`: runs a command, and turns its errors into one line and an exit status.

Each command is a module of `gnnplace.commands`, imported when it is called: `parse(arguments)` parses the words after
the command, and `main(chosen)` returns its exit status. Imports that take time stand in `main`, so `--help` and usage
errors are quick.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module

from gnnplace.commands.usage import BAD_INPUT, INTERRUPTED, USAGE, Parser
from gnnplace.complaints import UsageError, printable
from gnnplace.isolation import imports
from gnnplace.isolation.scratch import own_temporary_folder
from gnnplace.version import VERSION

COMMANDS = {
    "train": "train a placement policy on one graph or many",
    "place": "find a placement of a graph on a cluster, with a planner or a trained policy",
    "simulate": "the step time and memory of a placement",
    "explain": "why a placed step takes as long as it does, and what would shorten it",
    "judge": "an assignment that you have, as its program runs it: step time, memory, the best change, a better one",
    "export": "a placement as other programs read it: accelerate, Perfetto, Graphviz, GraphML",
    "report": "trainings as a page: learning curves, policies beside heuristics and the bound",
    "compare": "every planner on one problem: step time, memory, bound, planning time",
    "measure": "run a placed step on this machine's devices and time it",
    "profile": "measure every op of a workload and every link on this machine",
    "calibrate": "this machine as a cluster file, fitted to measured workloads",
    "clusters": "machines: list the hardware that is known, show one, write one down as a cluster file",
    "graphs": "the corpus: list, show, import, and synthetic graphs of its costs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status; usage errors and `--help` exit."""
    parser = Parser(
        "", "Device placement of neural-network training steps: learned planners, baselines, an exact simulator."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "commands:\n" + "\n".join(f"  {name:10} {purpose}" for name, purpose in COMMANDS.items())
    parser.add_argument("--version", action="version", version=f"gnnplace {VERSION}")
    parser.add_argument(
        "command", choices=tuple(COMMANDS), metavar="COMMAND", help="one of those below; COMMAND --help says more"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the command's arguments")
    chosen = parser.parse_args(arguments)
    imports.leave_settings_of_this_folder()
    return _run(chosen.command, chosen.arguments)


def _run(command: str, arguments: list[str]) -> int:
    try:
        module = import_module(f"gnnplace.commands.{command}")
        chosen = module.parse(arguments)
        chosen.command_line = shlex.join(["gnnplace", command, *arguments])
        with own_temporary_folder():
            return int(module.main(chosen))
    except UsageError as error:
        sys.exit(_complain(command, f"error: {error}; see gnnplace {command} --help", USAGE))
    except ValueError as error:
        return _complain(command, str(error), BAD_INPUT)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        return _complain(command, message, BAD_INPUT)
    except KeyboardInterrupt:  # only in a program that calls `main`; `gnnplace.start` handles signals of a command
        return _complain(command, "interrupted", INTERRUPTED)


def _complain(command: str, message: str, status: int) -> int:
    print(printable(f"gnnplace {command}: {' '.join(message.splitlines())}"), file=sys.stderr)
    return status
