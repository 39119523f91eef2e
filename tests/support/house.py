"""The package counted as a reader meets it: modules, fragments, class names, words that name nothing, long lines, circles of imports.

`PYTHONPATH=tests python -m tests.support.house` prints the lists.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[2]
FRAGMENT = 80  # lines
LONG = 120  # characters
VAGUE = frozenset(["found", "made", "known", "own", "asked", "said", "taken", "heard"])  # they say when a thing came, not what it is


class Module:
    """A file of the package, and its name as Python imports it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = path.read_text().splitlines()
        self.tree = ast.parse("\n".join(self.lines))
        self.package = path.stem == "__init__"
        self.name = ".".join((path.parent if self.package else path.with_suffix("")).relative_to(ROOT).parts)

    @property
    def counts(self) -> bool:
        """An `__init__` of less than three lines only says that its folder is a package."""
        return not self.package or len(self.lines) >= 3

    def class_names(self) -> set[str]:
        """The public classes that it defines."""
        return {node.name for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}

    def vague_bindings(self) -> Iterator[str]:
        """Every place that gives one of the vague words a value: an assignment of any kind, or a parameter; a type alone is none."""
        declared = {node.target for node in ast.walk(self.tree) if isinstance(node, ast.AnnAssign) and node.value is None}
        for node in ast.walk(self.tree):
            name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
            if name in VAGUE and node not in declared and not isinstance(getattr(node, "ctx", None), ast.Load):
                yield f"{self.path.relative_to(ROOT)}:{node.lineno} {name}"

    def long_lines(self) -> Iterator[str]:
        """Lines that a screen cuts off; one with a link may be as long as the link makes it."""
        for number, line in enumerate(self.lines, 1):
            if len(line) > LONG and not re.search(r"https?://", line):
                yield f"{self.path.relative_to(ROOT)}:{number}"

    def imports(self, names: set[str]) -> set[str]:
        """The modules among `names` that it imports anywhere: in a function or for type checking, too."""
        targets = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= parts & names
                targets |= {node.module} if parts - names else set()
        return (targets & names) - {self.name}


class House:
    """The package."""

    @cached_property
    def modules(self) -> list[Module]:
        """All files, those without content, too."""
        return [Module(path) for path in sorted((ROOT / "gnnplace").glob("**/*.py"))]

    @cached_property
    def importers(self) -> dict[str, list[Module]]:
        """For a module, those that import it."""
        names = {module.name for module in self.modules}
        importers = defaultdict(list)
        for module in self.modules:
            for name in module.imports(names):
                importers[name].append(module)
        return importers

    def counted(self) -> list[str]:
        """The modules that count as such."""
        return [module.name for module in self.modules if module.counts]

    def fragments(self) -> list[str]:
        """Small modules that a single other one imports, which stands in the same folder: they could go home to it."""
        return [
            f"{module.name} ({len(module.lines)}) <- {users[0].name}"
            for module in self.modules
            if not module.package and len(module.lines) <= FRAGMENT
            if len(users := self.importers[module.name]) == 1 and users[0].path.parent == module.path.parent
        ]

    def ambiguous_classes(self) -> list[str]:
        """Class names that more than one module defines."""
        homes = defaultdict(list)
        for module in self.modules:
            for name in module.class_names():
                homes[name].append(module.name)
        return [f"{name}: {', '.join(modules)}" for name, modules in sorted(homes.items()) if len(modules) > 1]

    def vague_bindings(self) -> list[str]:
        """Names that say nothing, with their places."""
        return [place for module in self.modules for place in module.vague_bindings()]

    def long_lines(self) -> list[str]:
        """The places of long lines."""
        return [place for module in self.modules for place in module.long_lines()]

    def circles(self) -> list[str]:
        """Modules that import one another, directly or by way of others."""
        arrows = nx.DiGraph([(user.name, name) for name, users in self.importers.items() for user in users])
        return [" ".join(sorted(part)) for part in nx.strongly_connected_components(arrows) if len(part) > 1]

    def imports_of_tests(self) -> list[str]:
        """Files beside the package that import tests: experiments, benchmarks and examples work without them."""
        files = [path for folder in ("experiments", "benchmarks", "examples") for path in sorted((ROOT / folder).glob("**/*.py"))]
        return [str(path.relative_to(ROOT)) for path in files if re.search(r"^\s*(from|import) (tests|support)\b", path.read_text(), re.M)]


def main() -> None:
    """Print every list with its length, the modules as a number alone."""
    house = House()
    print(f"modules: {len(house.counted())}")
    for count in (house.fragments, house.ambiguous_classes, house.vague_bindings, house.long_lines, house.circles, house.imports_of_tests):
        entries = count()
        print(f"\n{count.__name__.replace('_', ' ')}: {len(entries)}", *entries, sep="\n  ")


if __name__ == "__main__":
    main()
