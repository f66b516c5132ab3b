# Everything is made inside the checkout: .venv for packages, build/ for what is generated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MXNET := .venv-mxnet
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES := src tests benchmarks tools
TYPED := src/lpot/core src/lpot/config src/lpot/strategy src/lpot/metric src/lpot/jobs

.PHONY: demo test test-mxnet test-all lint format bench docs clean

demo: $(VENV)/.demo
	$(BIN)/lpot demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow"

# MXNet is retired upstream and needs an environment of its own (numpy below 1.24).
test-mxnet: $(MXNET)/.dev
	$(MXNET)/bin/python -m pytest -m "not slow" tests/backends/mxnet tests/backends/test_remote.py \
		tests/core tests/strategy tests/config

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(TYPED)

format: $(VENV)/.dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

docs: $(VENV)/.dev
	$(BIN)/python -m lpot.config.document
	$(BIN)/python -m lpot.metric.document
	$(BIN)/python -m lpot.data.document

clean:
	rm -rf $(VENV) $(MXNET) build dist lpot_workspace src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The light installation: core and ONNX Runtime.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[onnx]"
	touch $@

# torch comes first and pinned: a plain `torch` would pull gigabytes of CUDA.
$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) --editable ".[onnx,pytorch,tensorflow,search,data,dev]"
	touch $@

$(MXNET)/.dev: pyproject.toml
	$(PYTHON) -m venv $(MXNET)
	$(MXNET)/bin/python -m pip install --quiet --disable-pip-version-check \
		mxnet==1.9.1 "numpy<1.24" pydantic ruamel.yaml rich click pytest hypothesis
	$(MXNET)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@
