# The README's commands: `make run`, `make test`. Everything goes into this checkout: .venv, target, out.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ENGINE := target/release/iotax-engine
STUDY  ?= quick
# Tests start iotax hundreds of times: it need not be compiled each time. What is used is compiled as it is first imported.
unexport PYTHONDONTWRITEBYTECODE
# Test binaries are seldom built twice from nearly the same sources where it is these targets that build them.
test test-vm test-all test-long: export CARGO_INCREMENTAL ?= 0

.PHONY: run schema test test-vm test-all test-long test-bare test-built check check-rust check-python bench statistics pictures gallery fuzz sim-test engine install test-packages wheel try-wheel engine-static site clean

run: install
	@$(BIN)/iotax run $(STUDY)

# Side by side: one compiles, the other downloads.
install:
	@$(MAKE) --no-print-directory --jobs=2 engine $(VENV)/.installed

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

# Format, lint, types, import rules.
check: check-rust check-python

# With the fuzz targets; libFuzzer itself, which needs a C++ compiler, is not built for that.
check-rust:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet -- --deny warnings
	CUSTOM_LIBFUZZER_PATH=unused/libfuzzer.a CARGO_TARGET_DIR=target cargo check --locked --manifest-path fuzz/Cargo.toml --quiet

check-python: $(VENV)/.installed
	$(BIN)/ruff format --check python bench tests/python
	$(BIN)/ruff check python bench tests/python
	$(BIN)/ty check python bench tests/python
	$(BIN)/pytest --quiet tests/python/rules/test_import_rules.py

# The quick tests: little processor time, and one test in virtual machines.
test: test-built
	@scripts/run-tests here

# All tests in virtual machines.
test-vm: install test-packages
	@VM_WORKERS=$${VM_WORKERS:-$$(nproc)} scripts/run-tests vm

# Every test that is not marked `long`.
test-all: test-built
	@scripts/run-tests all

# Compiled before, so that nothing is timed beside a compiler.
test-built: install test-packages
	@cargo test --locked --workspace --quiet --no-run

# What takes too long for every change: coverage of intervals, long fuzzing, every study.
test-long: install engine-static test-packages
	cargo test --locked --workspace --quiet
	$(BIN)/pytest tests/python -m 'long or not long'
	SECONDS_EACH=600 scripts/fuzz

# Both of the README's commands on a system that has nothing but what the README asks for (scripts/bare).
test-bare: test-packages
	scripts/bare all

# The schemas under schema/ and the reference of studies, made from the code; tests compare.
schema: install
	$(ENGINE) schema > schema/engine.schema.json
	$(BIN)/python -m iotax.study.schema > schema/study.schema.json
	$(BIN)/python -m iotax.study.reference > docs/reference/study.md

# A minute for each target, as many at a time as there are processors; SECONDS_EACH=600 for ten.
fuzz:
	@scripts/fuzz

# Faults from seeds, in virtual time: SEEDS=2000 of each protocol from FIRST=0 on; SEED='…' runs one again, as it was printed.
sim-test:
	@SEEDS="$(SEEDS)" FIRST="$(FIRST)" SEED="$(SEED)" scripts/sim-test

test-packages:
	@scripts/test-packages

# Wheels with the engine and the manual pages inside, in out/wheels: for glibc, whose tag says on which systems it runs by
# the engine's own symbols, with the engine for hosts beside it; and for musl.
wheel: install engine-static
	@rm -rf wheel-data/data && $(BIN)/python -m iotax.cli.manual wheel-data/data/share/man/man1
	@cp target/static/iotax-engine wheel-data/scripts/iotax-engine-static
	@$(BIN)/maturin build --quiet --release --locked --out out/wheels
	@scripts/musl-wheel out/wheels
	@ls -l out/wheels

# One file that runs on any Linux of this architecture, whatever its libc: target/static/iotax-engine. The hosts lab copies it
# to hosts as long as it is of the same build as the engine of `make engine`.
engine-static: engine
	@scripts/static-engine

# The wheel in an environment of its own, with a study of some seconds.
# PYTHON=… scripts/try-wheel out/wheels/*musllinux*.whl does the same where Python is built for musl.
try-wheel: wheel
	scripts/try-wheel "$$(ls -t out/wheels/*manylinux*.whl | head -1)"

# The documentation with search, the reference of commands and the gallery's newest reports, in out/site.
site: install
	@scripts/site

bench: install
	@PYTHONPATH=. $(BIN)/python -m bench $(ARGUMENTS)

# The README's charts and pictures, from a run of the current commit: five to twenty minutes, needs QEMU and Chromium.
pictures: install
	@$(BIN)/python -m bench.pictures $(ARGUMENTS)

# Complete reports for the site: half an hour, needs QEMU and Chromium. ARGUMENTS='kernel-exact' for one.
gallery: install
	@PYTHONPATH=. $(BIN)/python -m bench.gallery $(ARGUMENTS)

# Real runs in which nothing differs, or a known cost; about an hour. The table in docs/results/statistics.md.
statistics: install
	@PYTHONPATH=. $(BIN)/python -m bench.trust --page docs/results/statistics.md $(ARGUMENTS)

clean:
	rm -rf $(VENV) target out
