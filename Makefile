# The README's commands: `make run`, `make test`. All output goes into this checkout: .venv, target, out.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ENGINE := target/release/iotax-engine
STUDY  ?= quick
# Tests start iotax hundreds of times, so Python keeps the bytecode of what it imported.
unexport PYTHONDONTWRITEBYTECODE
# These targets rarely build test binaries twice from similar sources, so incremental compilation does not help.
test test-vm test-all test-long: export CARGO_INCREMENTAL ?= 0

.PHONY: run schema test test-vm test-all test-long test-bare test-built check check-rust check-python bench bench-peers statistics pictures gallery fuzz sim-test engine install develop test-packages wheel try-wheel engine-static site clean

run: install
	@$(BIN)/iotax run $(STUDY)

# In parallel: one compiles, the other downloads.
install:
	@$(MAKE) --no-print-directory --jobs=2 engine $(VENV)/.installed

# Also the Python packages of every extra and of the tests.
develop:
	@$(MAKE) --no-print-directory --jobs=2 engine $(VENV)/.developed

engine:
	@command -v cargo >/dev/null || { echo "iotax: cargo not found: install a Rust toolchain (https://rustup.rs), 1.89 or newer" >&2; exit 1; }
	@cargo build --release --locked --quiet -p iotax-engine

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "iotax: $(PYTHON) is older than 3.11: set PYTHON=python3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "iotax: no virtual environment could be made: on Debian and Ubuntu, install python3-venv" >&2; exit 1; }
	@echo "installing locked Python packages into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement requirements.lock
	@scripts/link-checkout $(VENV)
	@touch $@

$(VENV)/.developed: requirements-dev.lock $(VENV)/.installed
	@echo "installing locked Python packages of the extras and the tests into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement requirements-dev.lock
	@touch $@

# Format, lint, types, import rules.
check: check-rust check-python

# Includes the fuzz targets, but does not build libFuzzer, which needs a C++ compiler.
check-rust:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet -- --deny warnings
	CUSTOM_LIBFUZZER_PATH=unused/libfuzzer.a CARGO_TARGET_DIR=target cargo check --locked --manifest-path fuzz/Cargo.toml --quiet

check-python: $(VENV)/.developed
	$(BIN)/ruff format --check python bench tests/python
	$(BIN)/ruff check python bench tests/python
	$(BIN)/ty check python bench tests/python
	$(BIN)/pytest --quiet tests/python/rules/test_import_rules.py

# The quick tests, which take little CPU time, and one test in virtual machines.
test: test-built
	@scripts/run-tests here

# All tests in virtual machines.
test-vm: develop test-packages
	@VM_WORKERS=$${VM_WORKERS:-$$(nproc)} scripts/run-tests vm

# Every test not marked `long`.
test-all: test-built
	@scripts/run-tests all

# Compiles the tests first, so that no test runs while a compiler does.
test-built: develop test-packages
	@cargo test --locked --workspace --quiet --no-run

# Tests that take too long for every change: coverage of intervals, long fuzzing, every study.
test-long: develop engine-static test-packages
	cargo test --locked --workspace --quiet
	$(BIN)/pytest tests/python -m 'long or not long'
	SECONDS_EACH=600 scripts/fuzz

# Both of the README's commands on a system that has only what the README requires (scripts/bare).
test-bare: test-packages
	scripts/bare all

# Generates the schemas under schema/ and the reference of studies from the code; tests check that they are current.
schema: install
	$(ENGINE) schema > schema/engine.schema.json
	$(BIN)/python -m iotax.study.schema > schema/study.schema.json
	$(BIN)/python -m iotax.study.reference > docs/reference/study.md

# Fuzzes each target for a minute, one target per processor at a time; SECONDS_EACH=600 for ten minutes.
fuzz:
	@scripts/fuzz

# Random faults in virtual time: SEEDS=2000 seeds per protocol from FIRST=0 on; SEED='…', as printed, repeats one.
sim-test:
	@SEEDS="$(SEEDS)" FIRST="$(FIRST)" SEED="$(SEED)" scripts/sim-test

test-packages:
	@scripts/test-packages

# Wheels with the engine and the manual pages, in out/wheels: one for glibc, which also has the static engine for hosts,
# and one for musl. The tag of the former states which systems it supports, from the symbols that the engine uses.
wheel: develop engine-static
	@rm -rf wheel-data/data && $(BIN)/python -m iotax.cli.manual wheel-data/data/share/man/man1
	@cp target/static/iotax-engine wheel-data/scripts/iotax-engine-static
	@$(BIN)/maturin build --quiet --release --locked --out out/wheels
	@scripts/musl-wheel out/wheels
	@ls -l out/wheels

# The engine as a single file that runs on any Linux of this architecture, with any libc: target/static/iotax-engine.
# The hosts lab copies it to hosts if it is of the same build as the engine of `make engine`.
engine-static: engine
	@scripts/static-engine

# Installs the wheel into its own environment, and runs a study of a few seconds.
# PYTHON=… scripts/try-wheel out/wheels/*musllinux*.whl does the same with a Python built for musl.
try-wheel: wheel
	scripts/try-wheel "$$(ls -t out/wheels/*manylinux*.whl | head -1)"

# The documentation with search, the command reference and the gallery's newest reports, in out/site.
site: develop
	@scripts/site

bench: develop
	@PYTHONPATH=. $(BIN)/python -m bench $(ARGUMENTS)

# The peers of the bench that no distribution packages, or not with all engines, in out/peers.
bench-peers: develop
	@PYTHONPATH=. $(BIN)/python -m bench.peers $(ARGUMENTS)

# The charts and pictures of the README and the pages, from runs of the current commit: ten to thirty minutes, needs QEMU
# and Chromium.
pictures: develop
	@$(BIN)/python -m bench.pictures $(ARGUMENTS)

# Complete reports for the site: half an hour, needs QEMU and Chromium. ARGUMENTS='kernel-exact' for one.
gallery: develop
	@PYTHONPATH=. $(BIN)/python -m bench.gallery $(ARGUMENTS)

# Real runs without any difference, or with a known cost, for the table in docs/results/statistics.md: about an hour.
statistics: develop
	@PYTHONPATH=. $(BIN)/python -m bench.trust --page docs/results/statistics.md $(ARGUMENTS)

clean:
	rm -rf $(VENV) target out
