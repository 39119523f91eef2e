# `make train` and `make test` build what is missing; nothing but Python 3.11 or newer is needed.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
export OMP_NUM_THREADS ?= 2
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: train test lint graphs clean

train: $(VENV)/installed
	$(BIN)/python train.py --encoder gnn

test: $(VENV)/installed-dev lint
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/installed: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(INSTALL) "torch==$$(sed -n 's/^torch==//p' requirements.lock)"
	$(INSTALL) --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(INSTALL) --editable ".[dev,tensorflow,transformers]"
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
