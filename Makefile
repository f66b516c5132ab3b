# Everything is made inside the checkout: .venv for packages, build/ for what is generated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MXNET := .venv-mxnet
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES := src tests benchmarks tools examples
TYPED := src/lpot

# A file's tests stay together. A worker that has seen all frameworks takes 1.5 GB.
WORKERS ?= 2
PARALLEL := --numprocesses $(WORKERS) --dist loadfile

MXNET_TESTS := tests/backends/mxnet tests/backends/test_remote.py tests/core tests/strategy tests/config
# MXNet is retired upstream: it needs an environment of its own, with numpy below 1.24, which no
# Python above 3.11 can install. There its tests are left out, saying so.
HAS_MXNET := $(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info < (3, 12) else "")')

# The environments once more, on a CPU that seems to have AVX2 and nothing newer.
AVX2 := build/avx2-native
AVX2_MXNET := build/avx2-mxnet
AVX2_SOURCES := tools/avx2.py tools/avx2.c tools/avx2_python.c

.PHONY: demo test test-main test-mxnet test-avx2 avx2-env test-versions test-all no-mxnet coverage lint format \
	bench bench-mxnet nncf-env examples docs dist release clean

demo: $(VENV)/.demo
	$(BIN)/lpot demo

test: test-main $(if $(HAS_MXNET),test-mxnet,no-mxnet)

test-main: $(VENV)/.dev $(if $(HAS_MXNET),$(MXNET)/.dev)
	$(if $(HAS_MXNET),LPOT_MXNET_PYTHON=$(CURDIR)/$(MXNET)/bin/python) \
		$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

test-mxnet: $(MXNET)/.dev
	$(MXNET)/bin/python -m pytest -m "not slow" $(MXNET_TESTS)

# The whole suite at full speed on that CPU; then models that travel between this one and a CPU
# that is emulated wholly, which needs qemu.
test-avx2: avx2-env
	$(if $(HAS_MXNET),LPOT_MXNET_PYTHON=$(CURDIR)/$(AVX2_MXNET)/bin/python) \
		$(AVX2)/bin/python -m pytest -m "not slow" $(PARALLEL)
	$(if $(HAS_MXNET),$(AVX2_MXNET)/bin/python -m pytest -m "not slow" $(MXNET_TESTS))
	$(BIN)/python -m pytest tests/avx2
	$(if $(HAS_MXNET),$(MXNET)/bin/python -m pytest tests/avx2/test_target.py)

avx2-env: $(AVX2)/bin/python $(if $(HAS_MXNET),$(AVX2_MXNET)/bin/python)

$(AVX2)/bin/python: $(VENV)/.dev $(AVX2_SOURCES)
	$(BIN)/python tools/avx2.py $(AVX2)

$(AVX2_MXNET)/bin/python: $(MXNET)/.dev $(AVX2_SOURCES)
	$(MXNET)/bin/python tools/avx2.py $(AVX2_MXNET)

# Fresh environments with the oldest and the newest versions that pyproject.toml promises.
test-versions: $(VENV)/.dev
	$(PIP) uv
	$(BIN)/python tools/versions.py $(ONLY)

no-mxnet:
	@echo "the tests of MXNet are left out: they need Python 3.11"

test-all: $(VENV)/.dev $(if $(HAS_MXNET),$(MXNET)/.dev,no-mxnet)
	$(if $(HAS_MXNET),LPOT_MXNET_PYTHON=$(CURDIR)/$(MXNET)/bin/python) \
		$(BIN)/python -m pytest --ignore tests/avx2
	$(if $(HAS_MXNET),$(MXNET)/bin/python -m pytest $(MXNET_TESTS))
	$(MAKE) test-avx2

# Branches counted, in child processes and with MXNet, too. A file that is whole has its hash in its
# name: tests kill children while these write.
coverage: $(VENV)/.dev $(if $(HAS_MXNET),$(MXNET)/.dev)
	$(BIN)/python -m coverage erase
	$(if $(HAS_MXNET),LPOT_MXNET_PYTHON=$(CURDIR)/$(MXNET)/bin/python) \
		$(BIN)/python -m coverage run -m pytest -m "not slow" $(PARALLEL)
	$(if $(HAS_MXNET),$(MXNET)/bin/python -m coverage run -m pytest -m "not slow" tests/backends/mxnet)
	find build/coverage -name 'data.*' ! -name '*.H*h' -delete
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report $(if $(HAS_MXNET),,--omit='*/backends/mxnet/*')

lint: $(VENV)/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(TYPED)

format: $(VENV)/.dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

# The peer of the section `runtimes`, whose packages do not go together with ours.
nncf-env: build/nncf/bin/python

build/nncf/bin/python:
	$(PYTHON) -m venv build/nncf
	build/nncf/bin/python -m pip install --quiet --disable-pip-version-check nncf openvino onnx

bench-mxnet: $(MXNET)/.dev
	$(MXNET)/bin/python benchmarks/mxnet_digits.py

examples: $(VENV)/.dev
	for each in examples/*/smoke.sh; do \
		PYTHON=$(CURDIR)/$(BIN)/python PATH="$(CURDIR)/$(BIN):$$PATH" bash $$each || exit 1; \
	done

docs: $(VENV)/.dev
	$(BIN)/python -m lpot.config.document
	$(BIN)/python -m lpot.metric.document docs/metrics.md
	$(BIN)/python -m lpot.data.document
	$(PIP) --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Wheel and source archive, the same bytes each time, tried in empty environments.
dist: $(VENV)/.dev
	$(BIN)/python tools/dist.py --try onnx data search pytorch tensorflow $(if $(HAS_MXNET),mxnet)

release: $(VENV)/.dev
	$(BIN)/python tools/release.py

clean:
	rm -rf $(VENV) $(MXNET) build dist site lpot_workspace src/*.egg-info
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
		mxnet==1.9.1 "numpy<1.24" pydantic ruamel.yaml rich click jinja2 pytest hypothesis \
		"coverage>=7.10"
	$(MXNET)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@
