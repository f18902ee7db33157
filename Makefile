# Short names for what the repository can do. `make demo` and `make test` set up what they need.
.DEFAULT_GOAL := help
.PHONY: demo test interrupted presence besieged relayed many interop rates sim bench
.PHONY: bench-page readme-maps screenshots soak lint fuzz build install install-libraries
.PHONY: uninstall help

# A toolchain that scripts/setup.sh has just installed is not on the caller's path yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

demo: ## the main job, whole, on this machine: a tree to 3 receivers under 5 % loss
	@scripts/setup.sh rust
	cargo run --profile demo --locked --package towline-cli --bin towline -- demo $(ARGS)

test: ## all that continuous integration runs, or ARGS of cargo test; the last line counts
	@scripts/setup.sh rust tests checks
	@cargo run --quiet --locked --package xtask -- $(if $(ARGS),test $(ARGS),ci)

interrupted: ## each command ended by `timeout` and by SIGKILL, 20 times: its report must be there
	@scripts/setup.sh rust
	TOWLINE_REPEATS=20 cargo test --locked --package towline-cli --test lab signals -- --nocapture

presence: ## three receivers and `send` without flags, 50 times, 0 to 5 % lost: all three proven
	@scripts/setup.sh rust
	TOWLINE_REPEATS=50 cargo test --locked --package towline-cli --test lab \
	  presence::a_sender_serves -- --nocapture

besieged: ## one attacker against sessions with a key, 10 times: 220 MB proven, no message lost
	@scripts/setup.sh rust
	TOWLINE_REPEATS=10 cargo test --locked --package towline-cli --test lab siege -- --nocapture

relayed: ## a tree of 220 MB behind a relay and without one, 7 pairs: half the rate or more
	@scripts/setup.sh rust
	TOWLINE_REPEATS=7 cargo test --locked --profile demo --package towline-cli --test lab \
	  relay::a_relay_keeps -- --ignored --nocapture

many: ## 10,000 peers at one end, 1,000 of them active; minutes
	@scripts/setup.sh rust tests
	TOWLINE_PEERS=10000 cargo test --locked --package towline-cli --test lab crowd:: -- --nocapture

interop: ## every cell with OpenPGM and ZeroMQ, 100,000 messages each; minutes
	@scripts/setup.sh rust tests
	cargo test --locked --profile demo --package towline-cli --test lab \
	  interop::$(or $(ARGS),whole) -- --ignored --nocapture --test-threads 1

rates: ## ZeroMQ on either libpgm up to 2 Gbit/s, or ARGS=ours, mixed or the_programs; minutes
	@scripts/setup.sh rust tests
	cargo test --locked --profile demo --package towline-libpgm --test peers rates::$(ARGS) -- \
	  --ignored --nocapture --test-threads 1

sim: ## 10,000 seeds of the simulated network, or ARGS=SEEDS
	@scripts/setup.sh rust
	@cargo run --quiet --locked --package xtask -- sim $(ARGS)

bench: ## rates and costs on this machine, beside rivals
	@scripts/setup.sh rust bench
	@cargo run --quiet --locked --package xtask -- bench $(ARGS)

bench-page: ## all benches into docs/bench, and the book's page from them; on a quiet machine
	@scripts/setup.sh rust bench
	@cargo run --quiet --locked --package xtask -- bench --out docs/bench $(ARGS)
	@cargo run --quiet --locked --package xtask -- bench page

readme-maps: ## the pictures of the README anew, from real runs; needs a quiet machine
	@scripts/setup.sh rust
	@cargo run --quiet --locked --package xtask -- bench rtt-maps

screenshots: ## the book's pictures of terminals anew, from what the commands show
	@scripts/setup.sh rust tests
	TOWLINE_SCREENSHOTS=$(CURDIR)/docs/src/img/terminal cargo test --locked \
	  --package towline-cli --test terminal

soak: ## a minute at full rate, 1 % lost: nothing missing, memory and rate as they were
	@scripts/setup.sh rust
	@cargo run --quiet --locked --package xtask -- soak $(ARGS)

lint: ## format, spelling, dependencies, clippy, documentation, house rules, other targets
	@scripts/setup.sh rust checks
	@cargo run --quiet --locked --package xtask -- lint

fuzz: ## replay the corpora; with cargo-fuzz and a nightly toolchain, also look for more
	@scripts/setup.sh rust
	@cargo run --quiet --locked --package xtask -- fuzz $(ARGS)

# Where `make install` puts things, and what packages put before it.
PREFIX ?= /usr/local
DESTDIR ?=
# Installed instead of a program built here: sudo make install TOWLINE=target/release/towline
TOWLINE ?=

build: ## the program, optimised, without debug information or anything else
	@scripts/setup.sh rust
	cargo build --release --locked --package towline-cli

install: ## program, manual pages, completions, systemd unit beneath PREFIX, or /usr/local
	@[ -n "$(TOWLINE)" ] || $(MAKE) --no-print-directory build
	@contrib/install.sh "$(or $(TOWLINE),$(or $(CARGO_TARGET_DIR),target)/release/towline)" \
	  "$(PREFIX)" "$(DESTDIR)"

install-libraries: ## libtowline with its header, and the stand-in for libpgm, beneath PREFIX
	@scripts/setup.sh rust
	cargo build --release --locked --package towline-capi --package towline-libpgm
	@contrib/install-libraries.sh "$(or $(CARGO_TARGET_DIR),target)/release" "$(PREFIX)" "$(DESTDIR)"

uninstall: ## what make install and make install-libraries have put there away again
	@contrib/install.sh --remove "$(PREFIX)" "$(DESTDIR)"
	@contrib/install-libraries.sh --remove "$(PREFIX)" "$(DESTDIR)"

help: ## this list
	@sed -n 's/^\([a-z-]*\): ## /  make \1|/p' Makefile | column -t -s '|' 2>/dev/null || \
	  sed -n 's/^\([a-z-]*\): ## /  make \1  /p' Makefile
