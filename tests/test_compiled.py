"""The machine code of a kernel is kept on disk as long as its own file and those of the kernels that it calls stay."""

import ast
import importlib
import os
import sys
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import numpy as np
import pytest

from gnnplace.baselines.repairing import relief
from gnnplace.compiled import stamp

ROOT = Path(__file__).parents[1]
PARTS, KERNELS = {"part", "part_allocates_nothing"}, {"kernel", "allocates_nothing", "part", "part_allocates_nothing"}
HEAD = "from gnnplace.compiled import kernel\n"
INNER = HEAD + "@kernel\ndef inner(number):\n    return number + {}\n"
OUTER = HEAD + "from inner_of_test import inner\n@kernel\ndef outer(number):\n    return 9 * inner(number)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "outer_of_test.py").write_text(OUTER)
    yield tmp_path
    _forget()


def _forget():
    for name in ("inner_of_test", "outer_of_test"):
        sys.modules.pop(name, None)


def _outer(folder, added):
    """The kernel `outer` as a new process would get it, after `inner` was written anew."""
    (folder / "inner_of_test.py").write_text(INNER.format(added))
    os.utime(folder / "inner_of_test.py", (added, added))  # Python's own cache looks at the time of a file
    _forget()
    importlib.invalidate_caches()
    return importlib.import_module("outer_of_test").outer


def test_a_kernel_is_compiled_anew_when_one_that_it_calls_has_changed(folder):
    assert _outer(folder, 1)(1) == 18
    again = _outer(folder, 1)
    assert again(1) == 18 and again.stats.cache_hits  # from the disk
    changed = _outer(folder, 5)
    assert changed(1) == 54 and not changed.stats.cache_hits


def test_the_stamp_of_a_kernel_covers_files_that_its_callees_import():
    assert relief.best_move.__module__ != relief.overflow.__module__  # moves.py calls scale.py
    assert len({stamp(each.py_func) for each in (relief.relieve, relief.best_move, relief.overflow)}) == 3
    assert stamp(relief.relieve.py_func) == stamp(relief.hasten.py_func)


def test_the_stamp_of_a_kernel_covers_constants_of_other_files():
    """Numba compiles their values in, and the places of fields."""
    pairs = [NamedTuple("Pair", [(name, int) for name in names]) for names in (("a", "b"), ("b", "a"))]
    known = ({}, {"A": 1}, {"A": 2}, {"A": np.float32(2)}, {"A": (1, ("x", 2.5))}, {"A": pairs[0]}, {"A": pairs[1]})
    stamps = [stamp(FunctionType(_forget.__code__, names)) for names in known]
    assert len(set(stamps)) == len(known)
    assert stamp(FunctionType(_forget.__code__, {"A": object(), "__doc__": "other"})) == stamps[0]  # what has no text of its own


def test_only_kernels_call_parts():
    """A part called by Python would end the process."""
    files = [path for top in ("gnnplace", "tests", "benchmarks", "experiments") for path in Path(ROOT, top).rglob("*.py")]
    texts = {path: path.read_text() for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items() if "from gnnplace.compiled import" in text}
    parts = {(_module(path), each.name) for path, tree in trees.items() for each in tree.body if _decorated(each) & PARTS}
    homes = {module for module, _ in parts}
    trees |= {path: ast.parse(text) for path, text in texts.items() if path not in trees and _may_import(text, homes)}
    assert len(parts) > 50
    called = {(_module(path), name) for path, tree in trees.items() for name in _called_by_python(path, tree, parts)}
    assert not called


def _module(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _may_import(text, modules):
    return any(module in text or f"from {module.rpartition('.')[0]} import" in text for module in modules)


def _decorated(node):
    return {name.id for each in getattr(node, "decorator_list", ()) for name in ast.walk(each) if isinstance(name, ast.Name)}


def _called_by_python(path, tree, parts):
    """The parts that are named outside of kernels, whether imported or by their module."""
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    known = {alias.asname or alias.name for each in imports for alias in each.names if (each.module, alias.name) in parts}
    known |= {name for module, name in parts if module == _module(path)}
    modules = {alias.asname or alias.name: f"{each.module}.{alias.name}" for each in imports for alias in each.names}
    for node in (inner for each in tree.body if not _decorated(each) & KERNELS for inner in ast.walk(each)):
        if isinstance(node, ast.Name) and node.id in known:
            yield node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (modules.get(node.value.id), node.attr) in parts:
            yield node.attr
