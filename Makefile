# The two commands of the README, and a few for developers. Everything lives in .venv.
PYTHON ?= python3
override PYTHON := $(if $(filter 3.%,$(PYTHON)),python$(PYTHON),$(PYTHON))
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find csrc -name '*.cc' -o -name '*.h')

.PHONY: install run test slow sanitize pictures docs wheels gpu-kit gpu-table format clean

install: $(VENV)/installed  ## (again, where the C++ sources changed)

run: $(VENV)/installed  ## train hide-and-seek on this machine
	$(BIN)/srl run experiments/hide_and_seek.py

# A crash of a process of tests ends them: with another in its place, they would wait forever. A
# test that hangs shows its threads and ends as a crash. Hundreds of processes would compile the same
# files where bytecode is not written.
test: $(VENV)/installed-for-tests  ## every check but the slow ones
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder \
	  --max-worker-restart 0 -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

QUICK := tests/test_imports.py tests/test_from_python.py tests/test_checkpoint.py tests/dataflow \
  tests/algorithms/test_losses.py

.PHONY: quick
quick: $(VENV)/installed  ## some checks, for another Python: make PYTHON=... VENV=build/other quick
	@$(PIP_INSTALL) --quiet hypothesis pytest
	$(BIN)/pytest -q $(QUICK)

slow: $(VENV)/installed-for-tests  ## the checks that take minutes each
	$(BIN)/pytest -m slow

sanitize: $(VENV)/installed-for-tests  ## the C++ tests under the sanitizers
	for sanitizer in address,undefined thread; do \
	  $(BIN)/cmake -G Ninja -S . -B build/sanitize-$$sanitizer -DSRL_BUILD_TESTS=ON \
	    -DSRL_SANITIZE=$$sanitizer -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python >/dev/null && \
	  $(BIN)/cmake --build build/sanitize-$$sanitizer && \
	  build/sanitize-$$sanitizer/srl_tests || exit 1; \
	done

PYTHONS ?= python3.11 python3.12 python3.13

wheels: $(VENV)/installed-for-tests  ## dist/*.whl, for other machines (docs/sharing.md)
	$(BIN)/python tools/wheels.py $(PYTHONS)

gpu-kit: $(VENV)/installed-for-tests  ## dist/gpu-kit, for GPU machines without a network (docs/tuning.md)
	$(BIN)/python tools/gpu_kit.py $(PYTHON)

gpu-table: $(VENV)/installed-for-tests  ## docs/results/gpu.json and its table, from FROM=FOLDER
	$(BIN)/python tools/gpu_table.py $(FROM)

pictures: $(VENV)/installed  ## docs/plans/*.svg
	for plan in $$($(BIN)/python -c "from srl import plans; print(*plans.PLANS)"); do \
	  case $$plan in fused|replicated) size= ;; *) size="--plan.actors.replicas 2" ;; esac; \
	  $(BIN)/srl plan native:CartPole-v1 --plan $$plan $$size --svg docs/plans/$$plan.svg || exit 1; \
	done

docs: $(VENV)/installed-for-tests  ## the documents as a site, build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: .venv/installed-for-tests
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $$(find csrc docs tests -name '*.cc' -o -name '*.h' -o -name '*.c')

clean:
	rm -rf $(VENV) build

define CHECK_PYTHON
import sys
if sys.version_info < (3, 11):
    sys.exit("srl needs Python 3.11 or later, not " + sys.version.split()[0]
             + "; name one: make PYTHON=python3.12 ...")
endef
export CHECK_PYTHON

$(VENV)/bin/python:
	@$(PYTHON) -c "$$CHECK_PYTHON"
	@echo 'making $(VENV) with $(PYTHON)'
	@$(PYTHON) -m venv $(VENV)

# Editable, so that Python changes act at once; a change of the C++ sources installs again.
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check
define SAY_WHAT_COMES
	@echo 'installing into $(VENV), some minutes: downloads packages, then compiles the C++ sources'
endef

$(VENV)/installed: $(SOURCES) | $(VENV)/bin/python
	$(SAY_WHAT_COMES)
	@$(PIP_INSTALL) -e .
	@$(BIN)/python -c 'import srl.pools.native.pool'
	@touch $@

$(VENV)/installed-for-tests: $(SOURCES) | $(VENV)/bin/python
	$(SAY_WHAT_COMES)
	@$(PIP_INSTALL) -e '.[test]'
	@$(BIN)/python -c 'import srl.pools.native.pool'
	@touch $@ $(VENV)/installed
