"""The checks of a checkpoint's tree before a run continues from it: all come before anything of the run is set.

The tree is compared with the one that the learner and its Trainer would save now: names, shapes, types and lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gnnplace.formats import strict_json
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem

LOOPS = ("fit_loop", "validate_loop", "test_loop", "predict_loop")
OF_GROUP = ("params", "lr", "betas", "eps")  # of a group of Adam's parameters; torch may have more
OF_SCHEDULER = ("last_epoch", "base_lrs", "lr_lambdas", "_last_lr", "_step_count")
OF_PARAMETER = ("exp_avg", "exp_avg_sq")
COLUMNS: Mapping[str, torch.dtype] = {"device": torch.int32, "priority": torch.int64, "fusion": torch.int32}
EXTRA = "_extra_state"


def check_tree(
    tree: Mapping[str, Any],
    weights: Mapping[str, Any],
    problems: Sequence[Problem],
    trainer: Any,
    adam: Any,
    rates: Any,
) -> None:
    """Raises ValueError (one line, with the place) unless a run can go on from the tree.

    `weights` are the learner's present weights; `adam` and `rates` are an optimiser and its scheduler like the run's.
    """
    state = _same("state_dict", tree.get("state_dict"), weights)
    for name, average in state.items():
        if name.endswith(EXTRA):
            _check_averages(f"state_dict.{name}", average)
    _same("loops", tree.get("loops"), {name: getattr(trainer, name).state_dict() for name in LOOPS})
    _same("callbacks", tree.get("callbacks"), {})
    (optimizer,) = _same(
        "optimizer_states", tree.get("optimizer_states"), [{"state": {}, "param_groups": _groups(adam)}]
    )
    _check_moments(optimizer["state"], [parameter for group in adam.param_groups for parameter in group["params"]])
    _same("lr_schedulers", tree.get("lr_schedulers"), [{key: rates.state_dict()[key] for key in OF_SCHEDULER}])
    _check_best(tree["gnnplace"]["best"], problems)


def _groups(adam: Any) -> list[dict[str, Any]]:
    return [{key: group[key] for key in OF_GROUP} for group in adam.state_dict()["param_groups"]]


def _same(place: str, value: Any, like: Any) -> Any:
    """The value, if it has the form of `like`: its keys, as many list entries, tensors of its shape and type.

    More keys are fine. Raises ValueError for another form.
    """
    if (rule := _difference(value, like)) is not None:
        raise ValueError(f"tree.{place}: {strict_json.shown(value)}: {rule}")
    if isinstance(like, Mapping):
        for key, part in like.items():
            _same(f"{place}.{key}", value[key], part)
    elif isinstance(like, list | tuple):
        for index, (part, model) in enumerate(zip(value, like, strict=True)):
            _same(f"{place}[{index}]", part, model)
    return value


def _difference(value: Any, like: Any) -> str | None:
    match like:
        case Mapping():
            missing = [key for key in like if not isinstance(value, dict) or key not in value]
            return (
                "a map is due"
                if not isinstance(value, dict)
                else f"{strict_json.shown(missing[0])} is missing"
                if missing
                else None
            )
        case list() | tuple():
            return None if isinstance(value, list) and len(value) == len(like) else f"a list of {len(like)} is due"
        case Tensor():
            return _tensor_difference(value, like)
        case bool():
            return None if isinstance(value, bool) else "true or false is due"
        case int():
            return None if type(value) is int and 0 <= value < 2**63 else "a whole number is due"
        case float():
            return None if type(value) in (int, float) and abs(value) < float("inf") else "a finite number is due"
    return None


def _tensor_difference(value: Any, like: Tensor) -> str | None:
    due = f"{str(like.dtype).removeprefix('torch.')}{list(like.shape)}"
    if not isinstance(value, Tensor) or value.shape != like.shape or value.dtype != like.dtype:
        return f"a tensor {due} is due"
    finite = value.isfinite() | (value == like.to(value.device))  # an empty range is infinite
    return None if finite.all() else f"a tensor {due} of finite numbers is due"


def _check_averages(place: str, averages: Any) -> None:
    """Checks the moving averages by problem; an average is NaN until a sample counts."""
    if not isinstance(averages, dict) or not all(
        type(key) is int and isinstance(part, Tensor) and part.dtype == torch.float64 and not part.isinf().any()
        for key, part in averages.items()
    ):
        raise ValueError(f"tree.{place}: {strict_json.shown(averages)}: a map of problems to float64 tensors is due")


def _check_moments(state: Mapping[Any, Any], parameters: Sequence[Tensor]) -> None:
    """Checks Adam's averages of each parameter that has had a gradient."""
    for number, moments in state.items():
        if type(number) is not int or not 0 <= number < len(parameters):
            raise ValueError(
                f"tree.optimizer_states[0].state: {strict_json.shown(number)} is no parameter; there are "
                f"{len(parameters)}"
            )
        like = dict.fromkeys(OF_PARAMETER, parameters[number].detach().cpu()) | {"step": torch.tensor(0.0)}
        _same(f"optimizer_states[0].state[{number}]", moments, like)


def _check_best(best: Any, problems: Sequence[Problem]) -> None:
    if not isinstance(best, list) or len(best) != len(problems):
        raise ValueError(
            f"tree.gnnplace.best: {strict_json.shown(best)}: a list of {len(problems)} is due, one of each problem"
        )
    for number, (entry, problem) in enumerate(zip(best, problems, strict=True)):
        place = f"tree.gnnplace.best[{number}]"
        if entry is not None:
            columns = {name: _column(f"{place}.{name}", entry.get(name), dtype) for name, dtype in COLUMNS.items()}
            try:
                check(problem, _placement(entry, columns))
            except ValueError as error:
                raise ValueError(f"{place}.{error}") from error
            for choice in _choices(entry):
                if (
                    not isinstance(choice, Tensor)
                    or choice.dtype != torch.int64
                    or not choice.numel()
                    or choice.min() < 0
                ):
                    raise ValueError(f"{place}.choices: numbers of options, int64, are due")


def _column(place: str, column: Any, dtype: torch.dtype) -> Any:
    if column is None or (
        isinstance(column, Tensor) and column.dtype == dtype and column.dim() == 1 and column.numel()
    ):
        return None if column is None else column.numpy()
    raise ValueError(f"{place}: a list of {str(dtype).removeprefix('torch.')} is due")


def _placement(entry: Mapping[str, Any], columns: Mapping[str, Any]) -> Placement:
    if columns["device"] is None:
        raise ValueError("device: is missing")
    if columns["priority"] is not None and columns["priority"].shape != columns["device"].shape:
        raise ValueError("priority: there is one of each op")
    return Placement(columns["device"], entry["schedule"], columns["priority"], columns["fusion"])


def _choices(entry: Mapping[str, Any]) -> Iterator[Any]:
    return (choice for step in entry.get("choices") or () for choice in step.values())
