# `make train`, `make test` and `make test-all` build what is missing; nothing but Python 3.11 or newer is needed.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
export OMP_NUM_THREADS ?= 2
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: train test typed test-rest test-all thorough reliability fuzz rebuild docs lint scotch clean

# The hierarchical policy with a GNN learns from four small problems of three lineages and places a graph and a cluster that it never saw
MISSION = build/mission
train: $(VENV)/installed
	rm -rf $(MISSION)
	$(BIN)/python train.py --settings general --encoder gnn --runs $(MISSION) --training.problems_per_update 4 --training.updates 40 \
	  --problems '[[squeezenet, k40-2], [resnet-18, mixed-4], [transformer-xl-2, k40-4], [gru-lm-inference, k40-2]]'
	$(BIN)/gnnplace compare deepfm --cluster v100-8 --samples 30 \
	  --checkpoint $(MISSION)/hierarchical-general-1/checkpoint.safetensors hierarchical-gnn-held-out

# one thread of PyTorch for each of two workers; bytecode is kept, without which every process of the tests compiles all sources again
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

# The core of every promise, in at most five minutes, without frameworks
test: $(VENV)/installed-dev lint
	$(PYTEST) --core --cpu-budget --durations=10

# The core once more: arguments and results of every call have the types and shapes that it says. Most of its time goes into that
typed: $(VENV)/installed-dev
	$(PYTEST) --core --jaxtyping-packages=gnnplace,beartype.beartype

# What `make test` leaves out: frameworks, executors, rebuilding, hundreds of seeds, the wheel
test-rest: $(VENV)/installed-all
	$(PYTEST) -m "slow or gpu" --durations=25

test-all: test typed test-rest

# Thousands of seeds, and every graph of the corpus: hours
thorough: $(VENV)/installed-all
	$(PYTEST) --thorough -m thorough --durations=25

# Every case of hostile input and of faults, and the table of docs/reliability.md
reliability: $(VENV)/installed-all
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m tests.reliability

# Every reader is given damaged files for so many minutes; finds become cases (tests/hostile/finds)
MINUTES ?= 10
fuzz: $(VENV)/installed-all
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.hostile.fuzz $(MINUTES)

# `make test-all` rebuilds the small graphs of the corpus and some large ones; this rebuilds every one and compares the checksums
rebuild: $(VENV)/installed-all
	$(PYTEST) --thorough -k rebuilding_gives tests/corpus tests/frontends

# The documentation as pages in build/site; a warning is an error
docs: $(VENV)/installed
	$(INSTALL) --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; }

# Scotch's library is a package of Debian's, not of Python's: root gets it here, others are told how
scotch:
	@$(PYTHON) -c "import ctypes; ctypes.CDLL('libscotcherr-7.0.so')" 2>/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get -qq update >/dev/null 2>&1 && apt-get -qq install --yes libscotch-7.0 >/dev/null 2>&1; } \
	|| echo "without Scotch: apt-get install libscotch-7.0" >&2

$(VENV)/installed: pyproject.toml requirements.lock | $(VENV)/bin/python scotch
	$(INSTALL) "torch==$$(sed -n 's/^torch==//p' requirements.lock)"
	$(INSTALL) --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(INSTALL) --editable ".[dev]"
	touch $@

$(VENV)/installed-all: $(VENV)/installed-dev
	$(INSTALL) --editable ".[all]"
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
