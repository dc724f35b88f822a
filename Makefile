# The front door. `make help` lists what there is.

# Where the server looks for PostgreSQL installations besides the system's own, colon-separated.
export COPPICE_POSTGRES_DIRS ?= $(CURDIR)/.postgres

# Tests mostly wait for disks and for servers to start, so a few at a time suit any number of cores.
export RUST_TEST_THREADS ?= 4

# What is tested is compiled with the lints on: once, instead of once for the lints and once for the tests.
check test long soak lose simulate suites hostile openapi: export RUSTC_WORKSPACE_WRAPPER := $(CURDIR)/scripts/rustc-with-lints

.DEFAULT_GOAL := help
.PHONY: help setup build run check test long soak lose simulate suites hostile openapi bench

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is needed to build, run and test (quick when nothing is missing)
	@scripts/setup.sh

build: setup ## Build the release binary, target/release/coppice
	cargo build --release --locked
	scripts/strip.sh target/release/coppice

run: build ## Build, then run the server in the foreground (ARGS="--listen ADDR …" are passed on)
	@exec target/release/coppice serve $(ARGS)

check: setup ## Check format, lints and house rules, then run the tests that need no platform
	scripts/tidy.sh
	cargo fmt --all --check
	cargo test --workspace --locked --no-run
	RUSTDOC=$(CURDIR)/scripts/rustdoc-lints cargo test --workspace --locked --quiet --doc
	npm test --prefix console --silent
	RUST_TEST_THREADS=$$((2 * RUST_TEST_THREADS)) scripts/tests.sh in-process --lib --bins --test it

test: check ## What `check` does, then the stories of a whole platform
	scripts/tests.sh stories --test e2e

long: setup ## The stories that take long, and crashes at every step instead of at a third of them
	cargo test --locked -p coppice --test e2e -- --ignored
	COPPICE_STEPS=all cargo test --locked -p coppice --test e2e an_abort

# btrfs, reflink or copy; for how long; and which order of events (empty: another one each time).
DRIVER ?= btrfs
SECONDS ?= 600
SEED ?=

soak: setup ## Let everything happen to branches, then to a pool, in random order (DRIVER, SECONDS, SEED), then 1,000 pull requests, then suites and long stories
	COPPICE_SOAK_SECONDS=$(SECONDS) COPPICE_SOAK_SEED=$(SEED) \
	  cargo test --locked -p coppice --test e2e soak::$(DRIVER) -- --nocapture --include-ignored
	COPPICE_SOAK_SECONDS=$(SECONDS) COPPICE_SOAK_SEED=$(SEED) \
	  cargo test --locked -p coppice-gateway --test it exchanges -- --nocapture
	COPPICE_SOAK_PULLS=1000 cargo test --locked -p coppice --test e2e github::crowd -- --nocapture --include-ignored
	$(MAKE) suites
	$(MAKE) long

# So many losses of a machine, and how often its store is written to, in seconds.
ROUNDS ?= 100
INTERVAL ?= 2

lose: setup ## Lose a machine that is written to, take its platform back from the store, and tell what was lost (ROUNDS, INTERVAL, SEED)
	COPPICE_SOAK_ROUNDS=$(ROUNDS) COPPICE_SOAK_INTERVAL=$(INTERVAL) COPPICE_SOAK_SEED=$(SEED) \
	  cargo test --locked -p coppice --test e2e soak::btrfs_comes_back -- --nocapture

simulate: setup ## Play histories of the control plane without servers, each with another seed (SECONDS, SEED)
	COPPICE_SOAK_SECONDS=$(SECONDS) COPPICE_SOAK_SEED=$(SEED) \
	  cargo test --locked -p coppice-simulation every_history -- --nocapture

suites: setup ## Run the test suites of drivers on a bare server and through the gateway (ARGS are passed on)
	cargo build --locked
	e2e/suites/run $(ARGS)

hostile: setup ## Let an owner do the worst by SQL in random order (SECONDS, SEED)
	COPPICE_SOAK_SECONDS=$(SECONDS) COPPICE_SOAK_SEED=$(SEED) \
	  cargo test --locked -p coppice --test e2e attacks::hostile_sql -- --nocapture

openapi: ## Write openapi/openapi.json anew from the code
	COPPICE_WRITE_OPENAPI=1 cargo test --locked -p coppice-api the_committed_document

bench: build ## Run the benchmarks (ARGS are passed on)
	bench/run $(ARGS)
