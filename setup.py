"""What pyproject.toml can't say: a wheel carries weights, configurations and corpus, which lie beside the package, as `gnnplace/data`."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DATA = ("checkpoints/*", "configs/*/*.yaml", "datasets/manifest.json", "datasets/clusters/*", "datasets/graphs/*.arrow")


class BuildWithData(build_py):
    """Builds the package and copies its data. An editable install finds them in the checkout (see gnnplace/package_data.py)."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for pattern in DATA:
                self._copy(pattern)

    def _copy(self, pattern: str) -> None:
        paths = sorted(Path().glob(pattern))
        if not paths:
            raise FileNotFoundError(f"{pattern}: a wheel without these files would not work")
        for path in paths:
            target = Path(self.build_lib, "gnnplace", "data", path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": BuildWithData})
