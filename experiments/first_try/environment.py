"""An environment of its own for the sweep: this package with its lock, and the versions of torchvision and timm beside them.

    python -m experiments.first_try.environment DIR

torchvision comes without its dependencies, which are those of a PyTorch with CUDA.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LOCK = REPOSITORY / "requirements.lock"
ALONE = ("torchvision==0.28.0", "timm==1.0.31")


def commands(folder: Path) -> list[list[str]]:
    """What installs everything in an empty environment, one after the other."""
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    torch = next(line for line in LOCK.read_text().splitlines() if line.startswith("torch=="))
    locked = [*install, "--constraint", str(LOCK)]
    return [[*locked, torch], [*locked, "--editable", f"{REPOSITORY}[all]"], [*install, "--no-deps", *ALONE]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder that does not exist")
    folder = parser.parse_args().folder.resolve()
    if folder.exists():
        parser.error(f"{folder}: exists; name a new folder")
    venv.create(folder, with_pip=True)
    for command in commands(folder):
        if subprocess.run(command, check=False).returncode:
            sys.exit(f"{' '.join(command[3:])}: failed; remove {folder} before the next try")
    print(f"{folder / 'bin' / 'python'} -m experiments.first_try")


if __name__ == "__main__":
    main()
