# heapwright: `make run` does the main job on a real program, `make test` runs all tests and linters.
# Everything lands in .venv/ and build/; system packages are installed by tools/setup (root or sudo),
# or their install line is printed and the rest goes on.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := build/native
SANITIZERS := memory thread
SANITIZE_memory := address,undefined
SANITIZED_memory := allocator_tests allocator_thread_tests reaper_thread_tests
SANITIZE_thread := thread
SANITIZED_thread := allocator_thread_tests reaper_thread_tests
SOURCES := pyproject.toml CMakeLists.txt $(shell find native src -type f -not -name '*.pyc' 2>/dev/null)

.PHONY: build run bench docs man test torture lint native native-test sanitize unit-test peers format lock clean help

help:
	@sed -n 's/^# //p' Makefile | head -3; echo; echo "targets: build run bench docs man test lint sanitize peers native format lock clean"

build: $(VENV)/.installed

# What the system must have: a compiler, CMake, Python's venv; for tests also Chromium, Valgrind, GoogleTest.
build/.system:
	@mkdir -p build
	@tools/setup build && touch $@

build/.system-test:
	@mkdir -p build
	@tools/setup test && touch $@

$(VENV)/.dependencies: requirements.lock build/.system
	@tools/venv $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	@touch $@

run: build
	@mkdir -p out
	$(BIN)/heapwright tune --budget 48 --study out/spectrum.study -- $(BIN)/python examples/spectrum.py

# The allocator benchmarks under every malloc found (`make peers` gets more): about half an hour on two cores.
bench: build
	@mkdir -p out/bench
	$(BIN)/heapwright bench all -n 3 --json out/bench/bench.json --csv out/bench/bench.csv \
	  --markdown out/bench/bench.md --plots out/bench

# The documentation site, in build/site; the reference pages come from the code.
docs: build
	$(BIN)/python tools/reference.py verbs >docs/verbs.md
	$(BIN)/python tools/reference.py metrics >docs/metrics.md
	$(BIN)/python tools/settings_table.py >docs/settings.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo build/site/index.html

# The manual page and completion for bash, beside the command.
man: build
	@mkdir -p $(VENV)/share/man/man1 $(VENV)/share/bash-completion/completions
	$(BIN)/argparse-manpage --module heapwright.cli.main --function build_parser --prog heapwright \
	  --project-name heapwright --manual-title heapwright --version "$$($(BIN)/heapwright --version | cut -d' ' -f2)" \
	  --description 'finds, proves and ships the best malloc for a program' --format single-commands-section \
	  --output $(VENV)/share/man/man1/heapwright.1
	$(BIN)/heapwright completion bash >$(VENV)/share/bash-completion/completions/heapwright

# The allocators to compare with: packages, and the newest of those that are on crates.io.
peers: build
	@tools/peers $(VENV)/lib/heapwright/allocators

native: build/.system-test
	cmake -S . -B $(NATIVE) -DHEAPWRIGHT_TESTS=ON >$(NATIVE).log 2>&1 || (cat $(NATIVE).log; false)
	cmake --build $(NATIVE) -j 2 -- --quiet 2>/dev/null || cmake --build $(NATIVE) -j 2

native-test: native sanitize
	ctest --test-dir $(NATIVE) --output-on-failure

# The allocators' unit tests with sanitizers, in build/sanitize-*.
sanitize: $(addprefix sanitize-,$(SANITIZERS))

sanitize-%: build/.system-test
	cmake -S . -B build/$@ -DHEAPWRIGHT_TESTS=ON -DHEAPWRIGHT_SANITIZE=$(SANITIZE_$*) >build/$@.log 2>&1 || (cat build/$@.log; false)
	cmake --build build/$@ -j 2 --target $(SANITIZED_$*) -- --quiet
	ctest --test-dir build/$@ --label-regex allocator -j 2 --output-on-failure

unit-test: build native
	$(BIN)/python -m pytest -n 2

lint: build native
	$(BIN)/ruff check src tests tools tools/peers examples
	$(BIN)/ruff format --check src tests tools tools/peers examples
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'native/*.h' 'native/*.cpp' 'tests/native/*.cpp' 'tests/native/*.h')
	$(BIN)/clang-tidy --quiet -p $(NATIVE) $$(git ls-files 'native/*.cpp')

test: lint native-test unit-test

# Everything under tests/torture in full, in under two hours, and every command in the docs; its short form is part of `make test`.
torture: build native sanitize
	@tools/setup torture
	$(BIN)/python -m pytest -n 2 --long tests/torture tests/docs/test_running.py

format: build
	$(BIN)/ruff format src tests tools examples
	$(BIN)/ruff check --fix src tests tools examples
	$(BIN)/clang-format -i $$(git ls-files 'native/*.h' 'native/*.cpp' 'tests/native/*.cpp' 'tests/native/*.h')

# Resolve the dependencies anew for every supported Python, with hashes.
lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --group dev --extra cluster pyproject.toml -o requirements.lock --no-header

clean:
	rm -rf build $(VENV) out dist
