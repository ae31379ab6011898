# The two commands of the README, and a few for developers. Everything lives in .venv.
PYTHON ?= python3
override PYTHON := $(if $(filter 3.%,$(PYTHON)),python$(PYTHON),$(PYTHON))
BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find csrc -name '*.cc' -o -name '*.h')

.PHONY: install run test slow sanitize pictures docs wheels gpu-kit gpu-table format clean

install: .venv/installed  ## (again, where the C++ sources changed)

run: .venv/installed  ## train hide-and-seek on this machine
	$(BIN)/srl run experiments/hide_and_seek.py

# A crash of a process of tests ends them: with another in its place, they would wait forever. A
# test that hangs shows its threads and ends as a crash.
test: .venv/installed-for-tests  ## every check but the slow ones
	$(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder \
	  --max-worker-restart 0 -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

slow: .venv/installed-for-tests  ## the checks that take minutes each
	$(BIN)/pytest -m slow

sanitize: .venv/installed-for-tests  ## the C++ tests under the sanitizers
	for sanitizer in address,undefined thread; do \
	  $(BIN)/cmake -G Ninja -S . -B build/sanitize-$$sanitizer -DSRL_BUILD_TESTS=ON \
	    -DSRL_SANITIZE=$$sanitizer -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python >/dev/null && \
	  $(BIN)/cmake --build build/sanitize-$$sanitizer && \
	  build/sanitize-$$sanitizer/srl_tests || exit 1; \
	done

PYTHONS ?= python3.11 python3.12 python3.13

wheels: .venv/installed-for-tests  ## dist/*.whl, for other machines (docs/sharing.md)
	$(BIN)/python tools/wheels.py $(PYTHONS)

gpu-kit: .venv/installed-for-tests  ## dist/gpu-kit, for GPU machines without a network (docs/tuning.md)
	$(BIN)/python tools/gpu_kit.py $(PYTHON)

gpu-table: .venv/installed-for-tests  ## docs/results/gpu.json and its table, from FROM=FOLDER
	$(BIN)/python tools/gpu_table.py $(FROM)

PLANS := fused threads inline central decoupled serving env_servers replicated parameter_server

pictures: .venv/installed  ## docs/plans/*.svg
	for plan in $(PLANS); do \
	  $(BIN)/srl plan native:CartPole-v1 --plan $$plan --svg docs/plans/$$plan.svg || exit 1; \
	done

docs: .venv/installed-for-tests  ## the documents as a site, build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: .venv/installed-for-tests
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $$(find csrc docs tests -name '*.cc' -o -name '*.h' -o -name '*.c')

clean:
	rm -rf .venv build

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("srl needs Python 3.11 or later, not " + sys.version.split()[0] + "; name one: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

# Editable, so that Python changes act at once; a change of the C++ sources installs again.
.venv/installed: $(SOURCES) | .venv/bin/python
	@echo 'installing into .venv, and compiling: some minutes without another line'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	$(BIN)/python -c 'import srl.pools.native.core'
	touch $@

.venv/installed-for-tests: $(SOURCES) | .venv/bin/python
	@echo 'installing into .venv, and compiling: some minutes without another line'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	$(BIN)/python -c 'import srl.pools.native.core'
	touch $@ .venv/installed
