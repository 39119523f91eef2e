"""The figures of the sweep, the refusals by frequency, and what is wrong, as Markdown; they end `docs/first-try.md`."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import results
from experiments.first_try.sources import SOURCES

FOLDER = Path(__file__).parent
EXCLUSIONS = FOLDER / "exclusions.json"
PAGE, MARK = FOLDER.parents[1] / "docs" / "first-try.md", "<!-- the rest is written by `python -m experiments.first_try --page` -->\n"
TITLES = {
    "transformers_types": "transformers",
    "torch_modules": "PyTorch's modules",
    "torch_optimizers": "PyTorch's optimisers",
    "exportdb": "ExportDB",
    "torchvision_models": "torchvision",
    "timm_models": "timm",
    "pyg_convolutions": "PyTorch Geometric",
    "onnx_files": "ONNX",
}
WORDS = ("placed", "refused", "wrong", "crashed", "hung", "excluded")
LIMITED = ("before it is placed", "MemoryError", "NotRunnableError: MemoryError", "RuntimeError: [enforce fail at alloc_cpu.cpp")
GOALS = {
    ("transformers_types", "inference"): 98,
    ("transformers_types", "training"): 95,
    ("torchvision_models", "inference"): 99,
    ("torchvision_models", "training"): 99,
    ("timm_models", "inference"): 99,
    ("timm_models", "training"): 99,
    ("torch_modules", "inference"): 99,
    ("torch_modules", "training"): 99,
    ("pyg_convolutions", "inference"): 85,
    ("pyg_convolutions", "training"): 85,
    ("onnx_files", "inference"): 92,
}
Outcomes = Mapping[str, Sequence[Any]]  # "name, kind" -> [word, why, seconds, commit]


class Figure(NamedTuple):
    """Of one source and kind: the number of inputs that came to each word, without those of the list of exclusions.

    `with_option` of those that are placed need the option that their refusal names.
    """

    source: str
    kind: str
    listed: int
    words: Mapping[str, int]
    with_option: int = 0

    @property
    def tried(self) -> int:
        """The denominator."""
        return sum(self.words.values())

    @property
    def percent(self) -> float:
        """How many were placed, with the option or without."""
        return 100 * self.words.get("placed", 0) / max(1, self.tried)

    @property
    def percent_as_they_come(self) -> float:
        """How many were placed without the option."""
        return 100 * (self.words.get("placed", 0) - self.with_option) / max(1, self.tried)


def all_outcomes() -> dict[str, Outcomes]:
    """The outcomes of each source that has been tried."""
    paths = {source: FOLDER / "results" / f"{source}.json" for source in SOURCES}
    return {source: results.load(path)["outcomes"] for source, path in paths.items() if path.exists()}


def exclusions() -> dict[str, dict[str, str]]:
    """The committed list: by source the inputs that plain PyTorch or ONNX Runtime does not run, with the reason."""
    return json.loads(EXCLUSIONS.read_text()) if EXCLUSIONS.exists() else {}


def list_exclusions(outcomes: Mapping[str, Outcomes]) -> None:
    """Writes the list anew, of what came to `excluded` but for a limit of time or memory, which is the machine's."""
    excluded = {
        source: {label: why for label, (word, why, *_) in sorted(of.items()) if word == "excluded" and not why.startswith(LIMITED)}
        for source, of in sorted(outcomes.items())
    }
    EXCLUSIONS.write_text(json.dumps(excluded, indent=1, sort_keys=True) + "\n")


def figures(outcomes: Mapping[str, Outcomes], excluded: Mapping[str, Mapping[str, str]]) -> list[Figure]:
    """One for each source and kind. An input that is excluded without being listed counts, as one that is not placed."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    listed, with_option = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for source, of in outcomes.items():
        for label, (word, why, *_) in of.items():
            kind = label.rpartition(", ")[2]
            with_option[source, kind] += word == "placed" and why != ""
            if word == "excluded" and label in excluded.get(source, {}):
                listed[source, kind] += 1
            else:
                counts[source, kind][word] += 1
    return [Figure(*key, listed[key], counts[key], with_option[key]) for key in sorted({*counts, *listed})]


def optimizer_kinds(outcomes: Outcomes) -> tuple[list[str], list[str]]:
    """The classes of optimisers that are placed in all settings that PyTorch runs, and the others."""
    words: dict[str, set[str]] = defaultdict(set)
    for label, (word, *_) in outcomes.items():
        words[label.split()[0]].add(word)
    placed = sorted(name for name, of in words.items() if of <= {"placed", "excluded"} and "placed" in of)
    return placed, sorted(words.keys() - set(placed))


def reason(why: str) -> str:
    """Why an input was refused, without the file, the line and the names of this one; the code that needs it stays."""
    code = re.search(r" at [^ ]+:\d+ \((.*?)\)(?:;|, called at )", why)
    what = re.split(r" at [^ ]+:\d+ |; ", why)[0]
    what = re.sub(r"^\S*model\.onnx: ", "", what)
    what = re.sub(r"(input|node|output) '[^']*'|'[^']*(test_|_function_|/)[^']*'", lambda found: f"{found[1] or ''} '...'".strip(), what)
    return what[:160] + (f" (`{code[1][:100]}`)" if code else "")


def table(outcomes: Mapping[str, Outcomes]) -> str:
    """The figures; refusals by frequency; what is wrong, crashed or hung; excluded inputs that are not listed."""
    excluded = exclusions()
    parts = [_figures(figures(outcomes, excluded))]
    if "torch_optimizers" in outcomes:
        placed, others = optimizer_kinds(outcomes["torch_optimizers"])
        parts.append(
            f"Optimisers in all their settings: {len(placed)} of {len(placed) + len(others)} kinds; not: {', '.join(others) or 'none'}.\n"
        )
    for source, of in outcomes.items():
        parts += [part for part in (_refusals(source, of), _faults(source, of, excluded.get(source, {}))) if part]
    return "\n".join(parts)


def write_page(outcomes: Mapping[str, Outcomes]) -> None:
    """Writes the tables anew under the prose of the page."""
    prose, mark, _ = PAGE.read_text().partition(MARK)
    assert mark, f"{PAGE}: has no line {MARK}"
    PAGE.write_text(f"{prose}{mark}\n{table(outcomes)}")


def _figures(rows: Sequence[Figure]) -> str:
    titles = ["source", "kind", "runs", "on the list", *WORDS, "with the option", "as they come", "placed", "goal"]
    return results.markdown_table(titles, [_row(figure) for figure in rows])


def _row(figure: Figure) -> list[str]:
    goal = GOALS.get((figure.source, figure.kind))
    return [
        TITLES[figure.source], figure.kind, str(figure.tried), str(figure.listed), *(str(figure.words.get(word, 0)) for word in WORDS),
        str(figure.with_option), f"{figure.percent_as_they_come:.1f} %", f"{figure.percent:.1f} %", f"{goal} %" if goal else "",
    ]  # fmt: skip


def _refusals(source: str, outcomes: Outcomes) -> str:
    reasons: dict[str, list[str]] = defaultdict(list)
    for label, (word, why, *_) in outcomes.items():
        if word == "refused":
            reasons[reason(why)].append(label)
    rows = [[str(len(labels)), _cell(why), labels[0]] for why, labels in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))]
    return f"## {TITLES[source]}: refused\n\n" + results.markdown_table(["times", "because", "such as"], rows) if rows else ""


def _faults(source: str, outcomes: Outcomes, listed: Mapping[str, str]) -> str:
    rows = [
        [label, word, _cell(why)]
        for label, (word, why, *_) in sorted(outcomes.items())
        if word in ("wrong", "crashed", "hung") or (word == "excluded" and label not in listed)
    ]
    return (
        f"## {TITLES[source]}: wrong, crashed, hung, or excluded and not on the list\n\n"
        + (results.markdown_table(["input", "word", "what"], rows) if rows else "")
        if rows
        else ""
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
