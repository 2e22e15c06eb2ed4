# make demo       a virtual environment, the package, and a clip by the embedded model in ./out
# make test       the fast tests (also what CI runs); make test-full: all of them
# make check      lint, format and types; make bench: the engine's own cost; make clean: all of the above removed

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PROMPT ?= a large red circle bounces around on a navy background
SEED ?= 0

.PHONY: demo test test-full check bench clean

# Editable: a changed source file needs no new install, so the stamps hang on the two files that name what to install.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "videoinfer needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(BIN)/python -m pip install -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	touch $@

# out/demo.* belongs to this target and is made anew each time; the engine itself never overwrites a clip.
demo: $(VENV)/.installed
	mkdir -p out
	rm -f out/demo.*
	$(BIN)/videoinfer generate "$(PROMPT)" --seed $(SEED) -o out/demo.mp4
	@echo "The clip: $(CURDIR)/out/demo.mp4"

# One process for each core, and one thread in each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

test: $(VENV)/.installed-dev
	$(PYTEST) -m 'not slow'

test-full: $(VENV)/.installed-dev
	$(PYTEST)

# Types are checked on a copy that is laid out as it installs; see [tool.pyright] in pyproject.toml.
check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/check && mkdir -p build/check
	cp -R videoinfer build/check/
	cp -R apps cache_policies eval build/check/videoinfer/
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(VENV)/.installed
	$(BIN)/python -P -m videoinfer.eval.engine_overhead

clean:
	rm -rf $(VENV) build out videoinfer.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
