"""What `gnnplace train` does with its arguments: the configuration, the run, and what it found beside the baselines and the bound."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnplace.commands import seeds_table, training_table
from gnnplace.commands.arguments.train import MACHINE
from gnnplace.commands.usage import DONE, MEASUREMENT_FAILED, NOTHING_FEASIBLE
from gnnplace.complaints import UsageError
from gnnplace.config import files
from gnnplace.config.run import RunConfig
from gnnplace.isolation.linux import keep_freed_memory
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.report import terminal
from gnnplace.training import processes, run_folder
from gnnplace.training import run as training_run
from gnnplace.training.fit import flags
from gnnplace.training.run import TrainingRun


def main(chosen: argparse.Namespace) -> int:
    """Trains, or explains the knobs."""
    if chosen.knobs:
        sys.stdout.write(files.knobs_help())
        return DONE
    config = _config(chosen, chosen.overrides)
    keep_freed_memory(arenas=0)
    try:
        return _seed_by_seed([replace(config, seed=seed) for seed in chosen.seeds or [config.seed]], chosen)
    except MeasurementError as failed:
        terminal.warn(f"gnnplace train: {failed}")
        return MEASUREMENT_FAILED


def _seed_by_seed(configs: list[RunConfig], chosen: argparse.Namespace) -> int:
    """One run after another; of several, what they found over all seeds in the end."""
    outcomes: list[seeds_table.Outcome] = []
    documents: list[dict[str, Any]] = []
    status = DONE
    for config in configs:
        with ExitStack() as stack:
            run = _prepared(config, chosen, stack)
            if (stopped := _stopped(run)) is not None:
                return stopped
            if processes.launched_as() > 0:
                continue
            found = training_table.results(run)
            if not chosen.json:
                training_table.print_tables(run, found)
            documents.append(training_table.document(run, found))
            outcomes.append(seeds_table.outcome(run, found))
            status = status if all(best is not None for best in run.learner.best.found) else NOTHING_FEASIBLE
    if len(configs) == 1:
        if chosen.json and documents:
            terminal.print_json(documents[0])
    elif outcomes and chosen.json:
        terminal.print_json({"runs": documents, "problems": seeds_table.document(outcomes)})
    elif outcomes:
        seeds_table.print_table(outcomes)
    return status


def _prepared(config: RunConfig, chosen: argparse.Namespace, stack: ExitStack) -> TrainingRun:
    """The run; leaving `stack` lets go of its folder. The folder of a run that can't begin is removed."""
    flags(config.trainer)
    if processes.launched_as() > 0:  # one of several processes: the first has the run's folder
        path = chosen.resume or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = run_folder.followed(path)
        return training_run.prepare(replace(config, tracking="none", register=None), folder, stack, resumed=folder.begun, quiet=True)
    if chosen.resume:
        folder = run_folder.open_run(chosen.resume)
        stack.callback(folder.close)
        return training_run.prepare(config, folder, stack, resumed=folder.begun, quiet=chosen.quiet)
    folder = run_folder.create(Path(config.runs), config.name, files.to_yaml(config))
    stack.callback(folder.close)
    with ExitStack() as failed:
        failed.callback(folder.discard)
        run = training_run.prepare(config, folder, stack, resumed=False, quiet=chosen.quiet)
        failed.pop_all()
    return run


def _config(chosen: argparse.Namespace, overrides: list[str]) -> RunConfig:
    named = {f"--{name}": getattr(chosen, name) for name in ("policy", "settings") if getattr(chosen, name) is not None}
    overrides = [*([f"--algorithm.kind={chosen.algorithm}"] if chosen.algorithm else []), *overrides]
    if chosen.resume is None:
        if chosen.config and named:
            raise UsageError(f"--config: the file says which policy and settings, so {next(iter(named))} can't be given")
        if chosen.config:
            config = files.read_config(chosen.config, overrides, chosen.encoder)
        else:
            config = files.read_settings(chosen.policy or files.DEFAULT_POLICY, chosen.settings, overrides, chosen.encoder)
        return replace(config, dims=tuple((dict(config.dims) | dict(chosen.dim)).items()))
    others = [*named, *["--seeds"] * bool(chosen.seeds), *["--encoder"] * bool(chosen.encoder), *["--dim"] * bool(chosen.dim)]
    others += [word for word in overrides if word.startswith("--") and word.partition("=")[0] not in MACHINE]
    if others:
        raise UsageError(
            f"--resume: goes on with the run's own configuration, so {others[0]} can't be changed; what can: {', '.join(MACHINE)}"
        )
    return files.read_config(run_folder.config_of(chosen.resume), overrides)


def _stopped(run: TrainingRun) -> int | None:
    """Trains; the exit status of a run that a signal stopped."""
    signal = training_run.train(run)
    if signal is None:
        return None
    done = f"{run.learner.updates_done} of {run.config.training.all_updates} updates"
    terminal.warn(f"gnnplace train: stopped after {done}; go on with --resume {run.folder.path}")
    return 128 + signal
