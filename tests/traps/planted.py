"""What somebody may put into a folder for whoever runs a command there: settings of libraries, modules, packages, a repository of git.

Whatever runs of it writes the file EXECUTED.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Collection, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

EXECUTED = "executed"
OURS = "gnnplace"  # has no trap: Python looks for it where `python -m gnnplace` runs
NEVER_READ = "\x00: [neither YAML\n[nor TOML = {"
SETTINGS = {  # by library; a value would change what it does, or end it
    ".numba_config.yaml": "disable_jit: 1\ncache_dir: evil\ncache_locator_classes: trap.Trap\n",
    "matplotlibrc": "lines.linewidth: abc\ntext.usetex: True\n",
    ".env": "MLFLOW_TRACKING_URI=http://localhost:9\nOMP_NUM_THREADS=0\n",
    ".flaskenv": "FLASK_APP=trap\n",
    "keras.json": '{"backend": "trap"}',
    ".keras/keras.json": '{"backend": "trap"}',
    "scip.set": "limits/time = 0\n",
    "HiGHS.options": "time_limit = 0\n",
    "libkineto.conf": "ACTIVITIES_LOG_FILE=trap\n",
    ".netrc": "default login trap password trap\n",
    ".databrickscfg": "[DEFAULT]\nhost = http://localhost:9\n",
    ".gitattributes": "* filter=trap\n",
} | dict.fromkeys(
    (
        *("MLproject", "MLmodel", "conda.yaml", "python_env.yaml", "alembic.ini", "gunicorn.conf.py", "logging.conf", "logging.ini"),
        *("config.yaml", "config.json", "train.yaml", "lightning.yaml", "hparams.yaml", "checkpoint.safetensors", "gnnplace.yaml"),
        *("pyproject.toml", "setup.cfg", "tox.ini", "uv.lock", "uv.toml", "requirements.txt", "pyvenv.cfg", "python._pth", "trap.pth"),
        *("fonts.conf", ".fonts.conf", "plugins.xml", "cache.json", "default_config.yaml", ".plotly/.config", ".huggingface/token"),
        *("tokenizer.json", "tf_config.json", "torch_compile.json", ".pdbrc", ".pythonrc", ".condarc", ".networkxrc", "openvino.conf"),
        *("_ops.py.txt", "src/transformers/__init__.txt", "datasets/manifest.json", "configs/unit-placer/tuned.yaml"),
    ),
    NEVER_READ,
)


def _setting(name: str) -> str:
    """A setting of git's that names a program which git runs."""
    *section, key = name.split(".")
    return f"[{section[0]}{''.join(f' {part!r}' for part in section[1:])}]\n\t{key} = {{program}}\n".replace("'", '"')


PROGRAMS = ("core.fsmonitor", "core.pager", "core.sshCommand", "alias.version", "alias.status", "filter.trap.clean", "filter.trap.smudge")
GIT = {
    "config": "[core]\n\trepositoryformatversion = 0\n\thooksPath = hooks\n" + "".join(map(_setting, PROGRAMS)),
    "HEAD": "ref: refs/heads/main\n",
    "objects/.keep": "",
    "refs/.keep": "",
    **{f"hooks/{name}": "#!/bin/sh\n{program}\n" for name in ("post-checkout", "pre-commit", "post-index-change", "fsmonitor-watchman")},
}
POINTS = (  # groups that gnnplace and its dependencies ask for
    *("gnnplace.planners", "gnnplace.policies", "torch.backends", "numba_extensions", "networkx.backends", "pandas_plotting_backends"),
    *("mlflow.plugins", "mlflow.tracking_store", "mlflow.run_context_provider", "mlflow.request_header_provider", "mlflow.app"),
    *("plotly", "opentelemetry_context", "fsspec.specs", "lightning.fabric.plugins", "pytorch_lightning.callbacks", "keras.backends"),
)
FINDER = "__editable__.gnnplace-0.1.0.finder.__path_hook__"  # a relative entry of Python's path, which setuptools adds


def installed_names() -> set[str]:
    """The names of all modules of Python's and of what is installed."""
    return {*sys.stdlib_module_names, *packages_distributions()} - {OURS}


def plant(folder: Path, names: Collection[str]) -> None:
    """Puts every trap into a folder, and modules of these names."""
    bait = f"open({str(folder / EXECUTED)!r}, 'a').write(__name__ + ' ')\nraise SystemExit(99)\n"
    program = folder / "trap.sh"
    for path, content in _files(names, bait, str(program)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    program.write_text(f"#!/bin/sh\necho git >> {folder / EXECUTED}\n")
    for path in (program, *(folder / ".git" / "hooks").iterdir()):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _files(names: Collection[str], bait: str, program: str) -> Iterator[tuple[str, str]]:
    yield from SETTINGS.items()
    for name in names:
        yield f"{name}.py", bait
        yield f"{FINDER}/{name}.py", bait
    for name, text in GIT.items():
        yield f".git/{name}", text.replace("{program}", program)
    yield "trap-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: trap\nVersion: 1.0\n"
    yield "trap-1.0.dist-info/entry_points.txt", "".join(f"[{point}]\ntrap = trap:Trap\n" for point in POINTS)
