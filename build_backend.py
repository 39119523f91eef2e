"""What pyproject.toml can't say of building: setuptools, and what a wheel carries beside the package's own files.

A wheel carries weights, configurations and corpus, which lie beside the package, as `gnnplace/data`, and the machine code of kernels for
this machine's processor as `gnnplace/machine_code`, so that the first command after `pip install .` need not compile for a minute or more.
Other processors, and other versions of Numba and Python, do not read that code: `--config-settings machine-code=no` leaves it out of a
wheel for them. An editable install has neither: it finds its data in the checkout, and its kernels change.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403, the hooks that are not here
from setuptools.command.build_py import build_py

DATA = ("checkpoints/*", "configs/*/*.yaml", "datasets/manifest.json", "datasets/clusters/*", "datasets/graphs/*.arrow")
COMPILING = ("numpy", "numba", "llvmlite", "jaxtyping", "pydantic", "pyarrow", "pymetis", "scipy", "safetensors")  # what it imports
Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What compiling needs, in the versions that the package asks for, unless no machine code is wanted."""
    required: list[str] = tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]
    compiling = [each for each in required if re.split(r"[^\w-]", each)[0] in COMPILING]
    return build_meta.get_requires_for_build_wheel(config_settings) + (compiling if _compiles(config_settings) else [])


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """A wheel in that folder; returns its name."""
    BuildWithData.compiles = _compiles(config_settings)
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def _compiles(config_settings: Settings) -> bool:
    chosen = (config_settings or {}).get("machine-code", "yes")
    if chosen not in ("yes", "no"):
        raise ValueError(f"--config-settings machine-code={chosen}: must be yes or no")
    return bool(chosen == "yes")


class BuildWithData(build_py):
    """Builds the package, with its data and its machine code unless it is editable."""

    compiles = False  # set by `build_wheel`

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for pattern in DATA:
            self._copy(pattern)
        shutil.rmtree(Path(self.build_lib, "gnnplace", "machine_code"), ignore_errors=True)  # of an earlier build
        if self.compiles:
            self._compile()

    def _compile(self) -> None:
        """Has what is built compile itself, and leave no bytecode."""
        self.announce("compiling kernels, for a minute or two", level=2)
        path = os.pathsep.join([str(Path(self.build_lib).resolve()), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-m", "gnnplace.ahead_of_time"], cwd=self.build_lib, env=environment, check=True)

    def _copy(self, pattern: str) -> None:
        paths = sorted(Path().glob(pattern))
        if not paths:
            raise FileNotFoundError(f"{pattern}: a wheel without these files would not work")
        for path in paths:
            target = Path(self.build_lib, "gnnplace", "data", path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(path), str(target))
