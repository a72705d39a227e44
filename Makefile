# Two commands do it all on a fresh machine: `make run` and `make test`.

.PHONY: run test build install uninstall lint bench bench-mount bench-build bench-readme bench-growth static release lab lab-page prove-mount soak ci
.DEFAULT_GOAL := test
# Where rustup puts cargo, as scripts/setup looks for it.
export PATH := $(PATH):$(HOME)/.cargo/bin
HOST = $(shell rustc --print host-tuple)

run:
	./scripts/setup run
	cargo build --profile demo --locked -p extern4-cli
	./scripts/demo target/demo/extern4

test:
	./scripts/setup test
	./scripts/test

# The command for daily use, as fast as it can be made.
build:
	./scripts/setup run
	cargo build --release --locked -p extern4-cli

# `make build && sudo make install`: what root installs need not be built by root. mount(8) and fsck(8) look for their helpers in
# /sbin, whatever PREFIX is; SBINDIR= puts the links elsewhere.
BINARY = target/release/extern4
PREFIX = /usr/local
SBINDIR = /sbin
install uninstall:
	DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SBINDIR='$(SBINDIR)' ./scripts/install $@ '$(BINARY)'

# In minutes; CI asks it first.
lint:
	./scripts/lint

bench:
	./scripts/setup bench
	cargo build --release --locked -p extern4-cli
	cargo run --release --locked -q -p extern4-xtask -- bench $(ROWS)

bench-mount:
	$(MAKE) bench ROWS=mount-

bench-build:
	$(MAKE) bench ROWS=build-

# The rows of README, and its table.
bench-readme:
	$(MAKE) bench ROWS=--readme

# Costs for growing sizes; MOST=100000 leaves out larger trees.
bench-growth:
	./scripts/setup bench
	cargo build --release --locked -p extern4-cli
	cargo run --release --locked -q -p extern4-xtask -- growth $(MOST)

# One file that needs no library.
static:
	./scripts/setup run
	./scripts/static $(HOST)

# Everything that a release consists of, in target/dist. x86-64 also builds the command for aarch64.
AARCH64 = aarch64-unknown-linux-gnu
release: static
	./scripts/setup release
	[ $(HOST) = $(AARCH64) ] || ./scripts/static $(AARCH64)
	./scripts/release target/$(HOST)/release/extern4 $$([ $(HOST) = $(AARCH64) ] || echo target/$(AARCH64)/release/extern4)

# Counted in a separate build, whose atomics take notes; then measured, once the load average is below 1: after ten minutes above it
# the lab ends with an error. LAB=--busy measures all the same, LAB=--short takes some minutes. The report is under target/lab; its page
# becomes docs/lab.
lab:
	./scripts/setup run
	mkdir -p target/lab
	cargo run --release --locked -q -p extern4-lab --features audit -- count target/lab/counted
	cargo run --release --locked -q -p extern4-lab -- --counted target/lab/counted $(LAB)

# Takes the page of the last run over into the repository.
lab-page:
	test -s target/lab/page/README.md
	mkdir -p docs/lab && rm -f docs/lab/*
	cp target/lab/page/* docs/lab/

prove-mount:
	./scripts/setup prove
	cargo build --release --locked -p extern4-cli
	./scripts/prove-mount $(PROOFS)

soak:
	./scripts/setup soak
	./scripts/setup prove
	./scripts/soak

ci:
	.ci/run
