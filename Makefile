# `make demo` and `make test` do all set-up themselves; every step says what it does and is skipped while up to date.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
# What pip installs as torch: PyPI's Linux build brings its CUDA libraries. Where you have an index with a CPU build:
#   make demo TORCH="torch --index-url URL"
TORCH ?= 'torch>=2.10'
DEMO_ARGS ?=
PYTEST_ARGS ?= -n 2

VENV := .venv
BIN := $(VENV)/bin
CODE_OBJECTS := python/kimi_k3_specdec/kernels
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)
APT_PACKAGES := clang-22 lld-22 llvm-22

# The environment of this checkout, whatever is active in the caller's shell.
export VIRTUAL_ENV := $(abspath $(VENV))
export PYO3_PYTHON := $(VIRTUAL_ENV)/bin/python
unexport CONDA_PREFIX PYTHONPATH PYTHONHOME

.PHONY: help demo test test-vllm slow lint setup toolchain code-objects wheel clean

help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 20

demo: setup ## decode a nano Kimi-K3 in the gfx950 emulator, two ranks, checked against the reference
	@echo '==> kimi-k3-specdec demo $(DEMO_ARGS)'
	@$(BIN)/kimi-k3-specdec demo $(DEMO_ARGS)

test: setup lint ## every check except the slow ones
	@echo '==> cargo test'
	@cargo test --workspace --quiet
	@echo '==> pytest'
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(PYTEST_ARGS)

test-vllm: setup ## engines of the real vLLM with our kernels in the emulator, in an environment made for them (6.6 GB)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m vllm tests/vllm

slow: setup ## the checks that take minutes: real shapes, many seeds and schedules
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow $(PYTEST_ARGS)

lint: setup ## rustfmt, clippy, ruff and the house rules
	@echo '==> rustfmt, clippy, ruff, house rules'
	@cargo fmt --check
	@cargo clippy --workspace --all-targets --quiet -- --deny warnings
	@$(BIN)/ruff check --quiet .
	@$(BIN)/python tools/check_house.py

setup: toolchain $(VENV)/.torch code-objects $(VENV)/.installed ## all that demo and test need, nothing run

wheel: setup ## the wheel, code objects inside, in dist/
	@$(BIN)/maturin build --release --out dist

toolchain:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	  || { echo 'error: `$(PYTHON)` is missing or older than 3.10; install Python, or name one: make PYTHON=...' >&2; exit 2; }
	@command -v cargo >/dev/null && command -v cc >/dev/null \
	  || { echo 'error: no Rust toolchain (`cargo` and a C linker `cc`); install Rust 1.87 or newer with rustup' >&2; exit 2; }
	@if [[ -z "$${SPECDEC_CLANG:-}" && ! -x "$${ROCM_PATH:-/opt/rocm}/llvm/bin/clang" ]] \
	    && ! type clang-22 lld-22 llvm-objdump-22 >/dev/null 2>&1; then \
	  if [[ $$EUID != 0 ]] || ! command -v apt-get >/dev/null; then \
	    echo 'error: no compiler for the gfx950 kernels; install it: sudo apt-get install $(APT_PACKAGES)' >&2; exit 2; \
	  fi; \
	  echo '==> apt-get install $(APT_PACKAGES) (the kernel compiler)'; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $(APT_PACKAGES) >/dev/null; \
	fi

$(VENV)/.venv:
	@echo '==> $(VENV): a virtual environment for this checkout'
	@$(PYTHON) -m venv $(VENV) \
	  || { echo 'error: `$(PYTHON) -m venv` failed; on Debian: sudo apt-get install python3-venv' >&2; exit 2; }
	@touch $@

$(VENV)/.torch: $(VENV)/.venv
	@echo '==> $(VENV): torch (3 GB with the CUDA libraries that PyPI'"'"'s Linux build needs) and maturin'
	@$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	@$(BIN)/pip install --quiet --disable-pip-version-check 'maturin>=1.9,<2'
	@touch $@

code-objects: | $(VENV)/.venv
	@$(BIN)/python kernels/build.py

$(VENV)/.installed: $(RUST_SOURCES) pyproject.toml $(VENV)/.torch | code-objects
	@echo '==> $(VENV): the Rust extension and this package (cargo, release)'
	@PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/maturin develop --release --extras test --quiet
	@touch $@

clean: ## remove everything that was built, the virtual environment too
	rm -rf target $(VENV) dist build .pytest_cache .hypothesis .ruff_cache
	rm -f $(CODE_OBJECTS)/*.co $(CODE_OBJECTS)/manifest.json python/kimi_k3_specdec/*.so
