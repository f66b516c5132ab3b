# Everything is made inside the checkout: .venv for packages, build/ for what is generated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MXNET := .venv-mxnet
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES := src tests benchmarks tools examples
TYPED := src/lpot/core src/lpot/config src/lpot/strategy src/lpot/metric src/lpot/jobs

MXNET_TESTS := tests/backends/mxnet tests/backends/test_remote.py tests/core tests/strategy tests/config
# MXNet is retired upstream: it needs an environment of its own, with numpy below 1.24, which no
# Python above 3.11 can install. There its tests are left out, saying so.
HAS_MXNET := $(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info < (3, 12) else "")')

.PHONY: demo test test-main test-mxnet test-all no-mxnet lint format bench bench-mxnet examples docs clean

demo: $(VENV)/.demo
	$(BIN)/lpot demo

test: test-main $(if $(HAS_MXNET),test-mxnet,no-mxnet)

test-main: $(VENV)/.dev $(if $(HAS_MXNET),$(MXNET)/.dev)
	$(if $(HAS_MXNET),LPOT_MXNET_PYTHON=$(CURDIR)/$(MXNET)/bin/python) \
		$(BIN)/python -m pytest -m "not slow"

test-mxnet: $(MXNET)/.dev
	$(MXNET)/bin/python -m pytest -m "not slow" $(MXNET_TESTS)

no-mxnet:
	@echo "the tests of MXNet are left out: they need Python 3.11"

test-all: $(VENV)/.dev $(if $(HAS_MXNET),$(MXNET)/.dev,no-mxnet)
	$(if $(HAS_MXNET),LPOT_MXNET_PYTHON=$(CURDIR)/$(MXNET)/bin/python) $(BIN)/python -m pytest
	$(if $(HAS_MXNET),$(MXNET)/bin/python -m pytest $(MXNET_TESTS))

lint: $(VENV)/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(TYPED)

format: $(VENV)/.dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

bench-mxnet: $(MXNET)/.dev
	$(MXNET)/bin/python benchmarks/mxnet_digits.py

examples: $(VENV)/.dev
	for each in examples/*/smoke.sh; do \
		PYTHON=$(CURDIR)/$(BIN)/python PATH="$(CURDIR)/$(BIN):$$PATH" bash $$each || exit 1; \
	done

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
