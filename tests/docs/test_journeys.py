"""Each journey runs as it stands on its page, and prints what the page shows; only installing is left out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
JOURNEYS = sorted(DOCS.glob("journey-*.md"))
MOST_COMMANDS = 5  # besides the installation


def blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(body: str) -> list[str]:
    return [line for line in body.splitlines() if not line.startswith("pip install")]


@pytest.mark.slow
@pytest.mark.parametrize("page", JOURNEYS, ids=lambda page: page.stem)
def test_a_journey_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(DOCS.parent)}
    printed, ran = "", 0
    for head, body in blocks(page):
        if file := re.search(r'title="([^"]+)"', head):
            (tmp_path / file[1]).write_text(body)
        elif head == "bash":
            printed, ran = "", ran + len(commands(body))
            for command in commands(body):
                done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                printed += done.stdout
        elif head == "text":
            assert [line.rstrip() for line in printed.rstrip().splitlines()] == body.splitlines()
    assert 3 <= ran <= MOST_COMMANDS
