# Everything runs in .venv, from pinned and hashed packages. `make setup` is implied by the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Tests start hundreds of processes, which should not compile the package each.
unexport PYTHONDONTWRITEBYTECODE

# How many processes share the tests: most of them wait for servers, so more than there are cores.
WORKERS ?= 5
PYTEST := $(BIN)/python -m pytest
# A test that has not ended by then, its fixtures included, shows what every thread does, and the run ends.
# Its `timeout` ends only its body, and a fixture may build the servers.
STUCK = -o faulthandler_timeout=$(1) -o faulthandler_exit_on_timeout=true --max-worker-restart=0

.PHONY: help setup demo test test-all check bench soak load docs lock clean

help: ## List the targets (the default)
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(READY) ## Create .venv with the pinned packages (implied by the others)

$(READY): constraints.txt constraints-build.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Perago needs Python 3.11 or newer; try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pinned packages into $(VENV) (pyspark is large; the first time takes some minutes)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r constraints-build.txt
	@$(BIN)/python -m pip install -q --no-build-isolation --require-hashes -r constraints.txt
	@$(BIN)/python -m pip install -q --no-build-isolation --no-deps -e .
	@touch $(READY)

demo: $(READY) ## Run the demonstration on servers of its own
	@$(BIN)/python examples/demo.py $(if $(ROWS),--rows $(ROWS))

# The floor is for all processes of a run together: `coverage report` checks it.
MEASURED := --cov --cov-report= --cov-fail-under=0

test: $(READY) ## Run the tests that belong before every push, with coverage
	@rm -f .coverage .coverage.*
	@failed=0; \
	$(PYTEST) -n $(WORKERS) -m "not slow" $(call STUCK,1500) $(MEASURED) || failed=1; \
	$(BIN)/python -m coverage report || failed=1; \
	exit $$failed

# The tests that share the servers in parallel, then those that must be alone. All run, so that one
# run tells of all failures.
ALONE := tests/integration

test-all: $(READY) ## Run all tests: also the long ones, the cluster, Delta and the demo
	@rm -f .coverage .coverage.*
	@failed=0; \
	$(PYTEST) -n $(WORKERS) -m "not alone" $(call STUCK,3000) $(MEASURED) || failed=1; \
	$(PYTEST) -m alone $(call STUCK,3000) $(MEASURED) --cov-append $(ALONE) || failed=1; \
	$(BIN)/python -m coverage report || failed=1; \
	exit $$failed

check: $(READY) ## Run the linters, the type checker, and the rules of imports and dependencies
	$(BIN)/ruff check src tests examples docs
	$(BIN)/ruff format --check src tests examples docs
	$(BIN)/mypy src tests examples docs
	$(BIN)/lint-imports
	$(BIN)/deptry src

# ROWS="attempt-* idle" measures those rows and keeps what earlier runs measured of the others,
# QUICK=1 leaves out the long ones, DOCS=1 brings docs/performance.md up to date. A number that is
# missed fails nothing; a row that could not be measured does.
bench: $(READY) ## Measure the rows of docs/performance.md beside their peers (ROWS=, QUICK=1, DOCS=1)
	@$(if $(ROWS),,rm -rf build/bench/rows)
	@failed=0; \
	PERAGO_BENCH_ROWS="$(ROWS)" PERAGO_BENCH_QUICK="$(QUICK)" \
	  $(PYTEST) tests/bench -m bench -p no:cacheprovider || failed=1; \
	PYTHONPATH=tests $(BIN)/python -m support.bench.report $(if $(DOCS),--docs) || failed=1; \
	exit $$failed

# For how long the soak's fleet meets faults; the matrices before it take their own time.
MINUTES ?= 30
SEED ?= 1
SOAK := $(CURDIR)/build/soak

soak: $(READY) ## Try every fault and crash, then a fleet of workers under faults (MINUTES=30)
	@rm -rf $(SOAK) && mkdir -p $(SOAK)
	@failed=0; \
	PERAGO_SIMULATION_SCHEDULES=50000 $(PYTEST) -n 2 --dist load tests/simulation || failed=1; \
	PERAGO_SOAK_FOLDER=$(SOAK) $(PYTEST) -n $(WORKERS) --dist load -m soak tests/matrix || failed=1; \
	PYTHONPATH=tests $(BIN)/python -m soak --minutes $(MINUTES) --seed $(SEED) --folder $(SOAK) || failed=1; \
	exit $$failed

load: $(READY) ## Run ten thousand tasks: none lost, none run twice
	PERAGO_LOAD_TASKS=10000 $(PYTEST) -m slow tests/integration/worker/test_load.py

# The variable silences an announcement about another program.
docs: $(READY) ## Render the pages to site/, and fail on a dead link
	@$(BIN)/python docs/reference.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Addresses of registries are never written. uv prefers the versions of the existing constraints.txt, so a
# pin (above all pyspark's, which decides the jars) changes only where a range requires it.
lock: ## Regenerate the pins (needs uv on PATH)
	uv pip compile -q pyproject.toml --extra servers --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header -o constraints.txt
	uv pip compile -q --group build -c constraints.txt --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header -o constraints-build.txt

clean: ## Remove .venv and all caches of the tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis \
	  .coverage .coverage.*
