"""`gnnplace train`: a configuration from the command line, its runs, and their results beside baselines and bound."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnplace.commands import form_options, options, values
from gnnplace.commands.usage import BAD_INPUT, DONE, MEASUREMENT_FAILED, NOTHING_FEASIBLE, Parser, importing
from gnnplace.complaints import UsageError
from gnnplace.isolation.under_way import temporary_folder, undone
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.commands.methods_table import Method
    from gnnplace.commands.training_table import Known
    from gnnplace.config.run import RunConfig
    from gnnplace.training.run.in_folder import TrainingRun

PURPOSE = (
    "Trains a policy; ends with a table of its placement, the baselines and the bound, a placement file and a "
    "checkpoint."
)
MACHINE = tuple(
    f"--{knob}"
    for knob in (
        *(f"trainer.{flag}" for flag in ("accelerator", "devices", "num_nodes", "strategy", "max_time")),
        "tracking",
    )
)  # knobs that a resumed run may change
PARALLELISM = "micro-batches", "copies", "shared-input"
KNOBS = (
    "Every knob of the configuration is an option too, as --training.updates 10; --print_config shows them all; "
    "--knobs explains them."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; `overrides` holds the options that name knobs of the configuration."""
    # PyTorch reads it at its import; without it each process of a distributed run repeats the warnings of all
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    chosen, overrides = _parser().parse_known_args(arguments)
    return argparse.Namespace(**vars(chosen), overrides=overrides)


def _parser() -> Parser:
    parser = Parser("train", PURPOSE)
    parser.epilog = KNOBS
    _add_policy_arguments(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--config", type=Path, metavar="YAML", help="a complete configuration of your own")
    start.add_argument(
        "--resume", type=Path, metavar="RUN_FOLDER", help="go on with an interrupted run, on other devices if you like"
    )
    explained = "one run per seed, then the mean and interval over all"
    parser.add_argument("--seeds", metavar="N,N,...", type=_seeds, default=(), help=explained)
    explained = (
        "as many updates as N evaluations of one problem allow, so that policies can be compared; at the end "
        "searches get N evaluations, too"
    )
    parser.add_argument("--evaluations", metavar="N", type=values.positive, help=explained)
    options.add_dim_argument(parser, "; FILE:batch=8 for one of several files")
    form_options.add_arguments(parser)
    options.add_json_argument(parser, "one line of JSON instead of the table")
    parser.add_argument("--knobs", action="store_true", help="explain every knob and exit")
    parser.add_argument("--print_config", action="store_true", help="print every knob's value as YAML and exit")
    options.add_quiet_argument(parser)
    return parser


def _add_policy_arguments(parser: Parser) -> None:
    """Adds --policy, --encoder, --algorithm and --settings, which choose a configuration."""
    explained = (
        "the policy, hierarchical unless given, or FILE.yaml; --knobs explains each. Several are compared in the end"
    )
    parser.add_argument("--policy", metavar="NAME,...", type=_policies, default=(), help=explained)
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="the network that embeds ops and groups: paper or gnn, for policies that have both",
    )
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="the learning algorithm: reinforce or ppo; that of the settings unless given",
    )
    parser.add_argument(
        "--settings",
        metavar="NAME",
        help="tuned unless given, or published: as in the policy's paper, with nothing added",
    )


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different names such as hierarchical,go")
    return names


def _seeds(text: str) -> tuple[int, ...]:
    seeds = tuple(values.seed(part) for part in text.split(",") if part.isdecimal())
    if len(seeds) != text.count(",") + 1 or len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different numbers such as 0,1,2")
    return seeds


class MethodConfig(NamedTuple):
    """A configuration and, with --evaluations, the number of evaluations that each of its runs takes."""

    config: RunConfig
    evaluations: int | None = None


def main(chosen: argparse.Namespace) -> int:
    """Trains, or explains the knobs, or prints their values."""
    with importing():
        from gnnplace.config import files, tree
        from gnnplace.isolation.linux import keep_freed_memory
        from gnnplace.isolation.outcome import MeasurementError
        from gnnplace.training.update import processes
    if chosen.knobs:
        sys.stdout.write(tree.knobs_help())
        return DONE
    configs = _configs(chosen, chosen.overrides)
    if chosen.print_config:
        sys.stdout.write("---\n".join(files.to_yaml(method.config) for method in configs.values()))
        return DONE
    keep_freed_memory(arenas=0)
    try:
        return _one_by_one(configs, chosen)
    except ValueError:
        if processes.launched_as() > 0:  # the first of several processes refuses it, too, and prints why
            return BAD_INPUT
        raise
    except MeasurementError as failed:
        terminal.warn(f"gnnplace train: {failed}")
        return MEASUREMENT_FAILED


def _one_by_one(configs: Mapping[str, MethodConfig], chosen: argparse.Namespace) -> int:
    """Trains one run after another; at the end prints the results over all seeds and methods."""
    with importing():
        from gnnplace.commands import methods_table, training_table
        from gnnplace.training.update import processes
    heuristics = training_table.Known() if len(configs) > 1 or chosen.evaluations is not None else None
    methods = {name: methods_table.Method([], each.evaluations) for name, each in configs.items()}
    documents, status = list[dict[str, Any]](), DONE
    for name, config in _seeded(configs, chosen.seeds):
        with ExitStack() as stack:
            run = _prepared(config, chosen, stack)
            if (stopped := _stopped(run)) is not None:
                return stopped
            if processes.launched_as() > 0:
                continue
            rankings = training_table.results(run, heuristics)
            if not chosen.json and heuristics is None:
                training_table.print_tables(run, rankings)
            documents.append(training_table.document(run, rankings))
            methods[name].outcomes.append(methods_table.outcome(run, rankings))
            status = status if _is_feasible(run) else NOTHING_FEASIBLE
    if documents:
        _conclude(methods, heuristics, documents, chosen)
    return status


def _is_feasible(run: TrainingRun) -> bool:
    """Whether every named problem has a feasible placement and, without named ones, some problem of the corpus."""
    feasible = [best is not None for best in run.learner.best.by_problem]
    return all(feasible[: len(run.config.problems)]) and any(feasible)


def _seeded(configs: Mapping[str, MethodConfig], seeds: Sequence[int]) -> list[tuple[str, RunConfig]]:
    from dataclasses import replace

    return [
        (name, replace(each.config, seed=seed))
        for name, each in configs.items()
        for seed in seeds or [each.config.seed]
    ]


def _conclude(
    methods: Mapping[str, Method], heuristics: Known | None, documents: list[dict[str, Any]], chosen: argparse.Namespace
) -> None:
    from gnnplace.commands import methods_table

    outcomes = [each for method in methods.values() for each in method.outcomes]
    tables = None if heuristics is None else methods_table.compared(methods, heuristics, chosen.evaluations)
    if chosen.json and tables is None and len(documents) == 1:
        terminal.print_json(documents[0])
    elif chosen.json:
        problems = methods_table.seeds_document(outcomes) if tables is None else methods_table.document(tables)
        terminal.print_json({"runs": documents, "problems": problems})
    elif tables is not None:
        methods_table.print_tables(tables)
        methods_table.print_page(outcomes)
    elif len(documents) > 1:
        methods_table.print_seeds(outcomes)


def _prepared(config: RunConfig, chosen: argparse.Namespace, stack: ExitStack) -> TrainingRun:
    """The run in its folder, which `stack` closes. The folder of a run that can't begin is removed."""
    from dataclasses import replace

    from gnnplace.config import files
    from gnnplace.training.run import folder as run_folder
    from gnnplace.training.run import in_folder as training_run
    from gnnplace.training.run.trainer_flags import tried
    from gnnplace.training.update import processes
    from gnnplace.training.update.experience import check_divided

    check_divided(config.training, tried(config.trainer))
    if processes.launched_as() > 0:  # the first of several processes owns the run's folder
        path = chosen.resume or Path(stack.enter_context(temporary_folder()))
        folder = run_folder.followed(path)
        return training_run.prepare(
            replace(config, tracking="none", register=None), folder, stack, resumed=folder.begun, quiet=True
        )
    if chosen.resume:
        folder = run_folder.open_run(chosen.resume)
        stack.callback(folder.close)
        return training_run.prepare(config, folder, stack, resumed=folder.begun, quiet=chosen.quiet)
    folder = run_folder.create(Path(config.runs), config.name, files.to_yaml(config))
    stack.callback(folder.close)
    with undone(folder.discard), ExitStack() as failed:
        failed.callback(folder.discard)
        run = training_run.prepare(config, folder, stack, resumed=False, quiet=chosen.quiet)
        failed.pop_all()
    return run


def _configs(chosen: argparse.Namespace, overrides: list[str]) -> dict[str, MethodConfig]:
    """The configurations to train, by the text of --policy or --config, or by the name of a resumed run."""
    from gnnplace.config import files

    overrides = [*([f"--algorithm.kind={chosen.algorithm}"] if chosen.algorithm else []), *overrides]
    if chosen.resume is not None:
        config = _resumed(chosen, overrides)
        return {config.name: MethodConfig(config)}
    if chosen.config and (chosen.policy or chosen.settings):
        option = "--policy" if chosen.policy else "--settings"
        raise UsageError(f"--config: the file says which policy and settings, so {option} can't be given")
    configs = {
        name: _config(name, chosen, overrides) for name in chosen.policy or [str(chosen.config or files.DEFAULT_POLICY)]
    }
    _require_same_problems(configs)
    if chosen.evaluations is None:
        return {name: MethodConfig(config) for name, config in configs.items()}
    return _within(configs, chosen.evaluations, chosen.quiet)


def _config(name: str, chosen: argparse.Namespace, overrides: list[str]) -> RunConfig:
    """The configuration in a file, or in a policy's settings."""
    from dataclasses import replace

    from gnnplace.config import files

    if chosen.config or name.endswith(".yaml"):
        config = files.read_config(Path(name), overrides, chosen.encoder)
    else:
        config = files.read_settings(name, chosen.settings, overrides, chosen.encoder)
    dims = tuple((dict(config.dims) | dict(chosen.dim)).items())
    return replace(config, dims=dims, parallelism=replace(config.parallelism, **form_options.given(chosen)))


def _within(configs: Mapping[str, RunConfig], evaluations: int, quiet: bool) -> dict[str, MethodConfig]:
    """The configurations, each with as many updates as `evaluations` allow."""
    from gnnplace.training.run.evaluations import within
    from gnnplace.training.run.problems import simulated

    first = next(iter(configs.values()))
    if first.evaluate == "measured" or first.corpus.splits or len(first.problems) > 1:
        raise UsageError("--evaluations: counts simulated steps of one problem; else say --training.updates")
    (problem,) = simulated(first, quiet)
    return {name: MethodConfig(*within(config, problem, evaluations)) for name, config in configs.items()}


def _require_same_problems(configs: Mapping[str, RunConfig]) -> None:
    """Raises UsageError if the policies to compare would learn from different problems."""
    (first, config), *others = configs.items()
    for knob in ("problems", "corpus", "dims", "parallelism", "costs", "evaluate"):
        for name, other in others:
            if getattr(other, knob) != getattr(config, knob):
                raise UsageError(f"--policy: {name} and {first} differ in {knob}; say --{knob} for all of them")


def _resumed(chosen: argparse.Namespace, overrides: list[str]) -> RunConfig:
    from gnnplace.config import files
    from gnnplace.training.run import folder as run_folder

    given = [
        f"--{name}"
        for name in ("policy", "settings", "seeds", "encoder", "evaluations", "dim", *PARALLELISM)
        if getattr(chosen, name.replace("-", "_"))
    ]
    given += [word for word in overrides if word.startswith("--") and word.partition("=")[0] not in MACHINE]
    if given:
        raise UsageError(
            f"--resume: goes on with the run's own configuration, so {given[0]} can't be changed; what can: "
            f"{', '.join(MACHINE)}"
        )
    return files.read_config(run_folder.config_of(chosen.resume), overrides)


def _stopped(run: TrainingRun) -> int | None:
    """Trains; returns the exit status if a signal stopped the run, else None."""
    from gnnplace.training.run import in_folder as training_run
    from gnnplace.training.update import processes

    signal = training_run.train(run)
    if signal is None:
        return None
    if processes.launched_as() > 0:
        return 128 + signal
    done = f"{run.learner.updates_done} of {run.learner.learning.all_updates} updates"
    terminal.warn(f"gnnplace train: stopped after {done}; go on with --resume {run.folder.path}")
    return 128 + signal
