"""Small linear programs, solved by the HiGHS of SciPy.

Results are bit-equal to those of `scipy.optimize.linprog` (tests/bounds/test_highs.py). The import of `scipy.optimize`
takes longer than the rest of a small problem's bound, and little of that is HiGHS. So only its extension module is
loaded, under its own name, if SciPy has it in the known place; otherwise `linprog` solves the program.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

SOLVER = "scipy.optimize._highspy._core"  # since SciPy 1.15
_loading = Lock()


class LinearProgram(NamedTuple):
    """Minimise `cost @ x` such that `table @ x <= 0`, `whole @ x == 1` and `low <= x <= high`."""

    cost: Float[np.ndarray, " columns"]
    table: Float[np.ndarray, "rows columns"]
    whole: Float[np.ndarray, " columns"]
    low: Float[np.ndarray, " columns"]
    high: Float[np.ndarray, " columns"]


class Optimum(NamedTuple):
    """An optimum of a program, and its value."""

    x: Float[np.ndarray, " columns"]
    value: float


def solved(program: LinearProgram) -> Optimum | None:
    """The solver's optimum; None if it finds none."""
    core = _core()
    return by_linprog(program) if core is None else _by_core(program, core)


def by_linprog(program: LinearProgram) -> Optimum | None:
    """The optimum by SciPy's own interface."""
    from scipy.optimize import linprog

    cost, table, whole, low, high = program
    optimum = linprog(
        cost,
        A_ub=table,
        b_ub=np.zeros(len(table)),
        A_eq=whole[None],
        b_eq=[1.0],
        bounds=np.stack([low, high], axis=1),
        method="highs",
    )
    return None if optimum.x is None else Optimum(optimum.x, float(optimum.fun))


def _by_core(program: LinearProgram, core: Any) -> Optimum | None:
    """The optimum by HiGHS, called as `linprog` calls it: the matrix by columns without zeros, the same options."""
    table = np.vstack([program.table, program.whole])
    column, row = np.nonzero(table.T)
    rows, columns = table.shape
    lp = core.HighsLp()
    lp.num_row_ = lp.a_matrix_.num_row_ = rows
    lp.num_col_ = lp.a_matrix_.num_col_ = columns
    lp.a_matrix_.format_ = core.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(column, np.arange(columns + 1)).astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = row.astype(np.int32), table[row, column]
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.low, program.high
    lp.row_lower_, lp.row_upper_ = np.append(np.full(rows - 1, -np.inf), 1.0), np.append(np.zeros(rows - 1), 1.0)
    options = core.HighsOptions()
    options.presolve, options.output_flag, options.log_to_console = "on", False, False
    solver = core._Highs()
    failed = core.HighsStatus.kError
    if failed in (solver.passOptions(options), solver.passModel(lp), solver.run()):
        return None
    if solver.getModelStatus() != core.HighsModelStatus.kOptimal:
        return None
    return Optimum(np.array(solver.getSolution().col_value), float(solver.getInfo().objective_function_value))


def _core() -> Any | None:
    """The extension module; None if SciPy does not have it in the known place."""
    with _loading:
        if SOLVER in sys.modules or "scipy.optimize" in sys.modules:
            return _imported()
        scipy = find_spec("scipy")
        roots = () if scipy is None else scipy.submodule_search_locations or ()
        folders = [str(Path(root, *SOLVER.split(".")[1:-1])) for root in roots]
        spec = PathFinder.find_spec(SOLVER, folders)
        if spec is None or spec.loader is None:
            return None
        sys.modules[SOLVER] = core = module_from_spec(spec)  # so that SciPy, should it be imported later, finds it
        spec.loader.exec_module(core)
        return core


def _imported() -> Any | None:
    try:
        return import_module(SOLVER)
    except ImportError:
        return None
