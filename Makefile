# Everything runs in .venv, from pinned and hashed packages. `make setup` is implied by the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check bench soak docs lock clean
setup: $(READY)

$(READY): constraints.txt constraints-build.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Perago needs Python 3.11 or newer; try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pinned packages into $(VENV) (pyspark is large; the first time takes some minutes)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r constraints-build.txt
	@$(BIN)/python -m pip install -q --no-build-isolation --require-hashes -r constraints.txt
	@$(BIN)/python -m pip install -q --no-build-isolation --no-deps -e .
	@touch $(READY)

demo: $(READY)
	@$(BIN)/python examples/demo.py $(if $(ROWS),--rows $(ROWS))

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff check src tests examples docs
	$(BIN)/ruff format --check src tests examples docs
	$(BIN)/mypy src tests examples docs
	$(BIN)/lint-imports
	$(BIN)/deptry src

bench: $(READY)
	$(BIN)/python -m pytest tests/bench -m bench -p no:cacheprovider

# What takes too long for every test run: ten thousand tasks instead of two.
soak: $(READY)
	PERAGO_LOAD_TASKS=10000 $(BIN)/python -m pytest tests/integration/worker/test_load.py

docs: $(READY)
	@$(BIN)/python docs/build.py

# Regenerates the pins; needs `uv` on PATH. Addresses of registries are never written. uv prefers the
# versions of an existing constraints.txt, so that a pin (pyspark's above all, which decides the jars)
# changes only where a range requires it; `--upgrade-package NAME` moves one on purpose.
lock:
	uv pip compile -q pyproject.toml --extra servers --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header -o constraints.txt
	uv pip compile -q --group build -c constraints.txt --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header -o constraints-build.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
