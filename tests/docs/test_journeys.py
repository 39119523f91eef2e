"""Each journey runs as it stands on its page, and prints what the page shows.

Installing is left out, but for packages of `examples/`. Times of trained policies are not compared: sums differ between processors.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.slow import thorough

DOCS = Path(__file__).parents[2] / "docs"
JOURNEYS = sorted(DOCS.glob("journey-*.md"))
MOST_COMMANDS = 5  # besides the installation
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]


def blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(body: str) -> list[str]:
    return [line for line in body.splitlines() if not line.startswith("pip install")]


def install_examples(page: Path, folder: Path) -> None:
    """pip builds where the sources lie, so they are copied."""
    for example in re.findall(r"^pip install .*\./(examples/\w+)$", page.read_text(), re.MULTILINE):
        copied = shutil.copytree(DOCS.parent / example, folder / "sources" / example)
        subprocess.run([*PIP, str(folder / "site"), str(copied)], check=True)


def write(name: str, body: str, folder: Path) -> None:
    """A file of the page; of one that is in the repository the page shows a part."""
    if (own := DOCS.parent / name).exists():
        assert body in own.read_text()
    else:
        (folder / name).write_text(body)


def shown(text: str, policies: list[str]) -> list[str]:
    """The lines; where some are of policies, these without times, and all without the widths of columns."""
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    if not policies:
        return lines
    words = [re.sub(r"─+", "─", " ".join(line.split())) for line in lines]
    return [re.sub(r"[\d,]+\.\d+", "#", line) if line.split(" ")[0] in policies else line for line in words]


@pytest.mark.slow
@pytest.mark.parametrize("page", [thorough(page) if "own-policy" in page.stem else page for page in JOURNEYS], ids=lambda page: page.stem)
def test_a_journey_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    install_examples(page, tmp_path)
    path = f"{DOCS.parent}:{tmp_path / 'site'}"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": path}
    policies = [name for names in re.findall(r"--policy (\S+)", page.read_text()) for name in names.split(",")]
    printed, ran = "", 0
    for head, body in blocks(page):
        if file := re.search(r'title="([^"]+)"', head):
            write(file[1], body, tmp_path)
        elif head == "bash":
            printed, ran = "", ran + len(commands(body))
            for command in commands(body):
                done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                assert all((tmp_path / written).exists() for written in re.findall(r" -o (\S+)", command))
                printed += done.stdout
        elif head == "text":
            assert shown(printed, policies) == shown(body, policies)
    assert 3 <= ran <= MOST_COMMANDS
