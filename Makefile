# What a person types. Each target sets itself up.

.PHONY: run help install deb image crates packages test lint format circles documentation published-documentation systems envoy-releases cluster-test fidelity fuzz differential bench soak truth batch site clean

run: ## price nginx and ModSecurity on this machine, in about a minute of trials
	@scripts/setup
	@cargo build --quiet --release --locked -p tollgate -p tollgate-modsecurity & build=$$!; trap 'kill $$build' INT TERM; \
	scripts/setup nginx libnginx-mod-http-modsecurity modsecurity-crs; wait $$build
	-@scripts/as-root "$${CARGO_TARGET_DIR:-target}/release/tollgate" systems install nginx nginx-modsecurity
	@"$${CARGO_TARGET_DIR:-target}/release/tollgate" run

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1 /p' Makefile | while read -r target text; do printf 'make %-14s %s\n' "$$target" "$$text"; done

install: ## the program with completions, manual pages, unit and configuration, in PREFIX (/usr/local), below DESTDIR
	@scripts/setup
	@cargo build --quiet --release --locked -p tollgate -p tollgate-modsecurity -p tollgate-envoy
	@scripts/install "$${CARGO_TARGET_DIR:-target}/release/tollgate"

deb: ## the same as a Debian package, in target/
	@scripts/setup dpkg-dev
	@cargo build --quiet --release --locked -p tollgate -p tollgate-modsecurity -p tollgate-envoy
	@scripts/deb "$${CARGO_TARGET_DIR:-target}/release/tollgate"

MUSL ?= x86_64-unknown-linux-musl
image: ## a container image of the program, which is linked statically (MUSL: the target of Rust), in target/
	@scripts/setup musl-tools
	@rustup target add $(MUSL)
	@cargo build --quiet --release --locked -p tollgate --target $(MUSL)
	@scripts/image "$${CARGO_TARGET_DIR:-target}/$(MUSL)/release/tollgate"

site: ## static pages of the committed results (target/site/index.html) and the manual (target/site/manual/index.html)
	@scripts/setup
	@cargo build --quiet --release --locked -p tollgate -p tollgate-manual
	@"$${CARGO_TARGET_DIR:-target}/release/tollgate" report --site records --out target/site
	@"$${CARGO_TARGET_DIR:-target}/release/tollgate-manual" . target/site/manual

# The libraries, with what they depend on.
published = $(addprefix -p tollgate-,http1 http2 net tls traffic stats load waf)

crates: ## the libraries tollgate-waf, tollgate-load and tollgate-stats as packages for crates.io, each built from its package, in target/package
	@scripts/setup
	@cargo package --quiet --locked $(published)

packages: ## the Debian packages of all systems under test
	@scripts/setup
	@cargo build --quiet --locked -p tollgate
	-@scripts/as-root "$${CARGO_TARGET_DIR:-target}/debug/tollgate" systems install

test: ## formatting, lints and all tests; the first time it builds Caddy, Coraza and CrowdSec: a quarter of an hour
	@scripts/test

lint: format circles documentation ## formatting, lints and documentation, where every warning is an error
	cargo clippy --workspace --all-targets --features e2e --locked -- -D warnings
	cargo clippy -p tollgate --test fidelity --test e2e --locked -- -D warnings

format: ## the part of lint that concerns formatting
	@scripts/setup rustfmt clippy
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check

circles: ## files of a crate that use each other in a circle
	@scripts/setup python3
	@scripts/check-circles

documentation: ## that of rustdoc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

published-documentation: ## of that, the published libraries alone, in half the time
	RUSTDOCFLAGS="-D warnings" cargo doc $(published) --no-deps --locked --quiet

systems: packages ## of that, the systems under test alone: Caddy, Coraza and CrowdSec built from Go modules, and the tests of all
	@scripts/setup go
	cargo run --quiet --locked -p tollgate -- systems build nginx-modsecurity
	cargo run --quiet --locked -p tollgate -- systems build caddy-coraza
	cargo run --quiet --locked -p tollgate -- systems build crowdsec-appsec
	cargo run --quiet --locked -p tollgate -- systems build envoy
	cargo run --quiet --locked -p tollgate -- systems build traefik
	cargo test -p tollgate --features e2e --locked --test e2e -- systems:: --test-threads=256

envoy-releases: ## of that, the module for Envoy in each release that it is for
	@scripts/setup python3 python3-pip curl nghttp2-client
	cargo test -p tollgate --features e2e --locked --test e2e --no-run
	@scripts/envoy-releases

cluster-test: ## of that, the lab on a Slurm cluster inside this machine: root and network namespaces are needed
	@scripts/setup iproute2 munge openssh-server slurm-client slurmctld slurmd nginx
	@tests/cluster/cluster --check
	cargo test -p tollgate --features e2e --locked --test e2e -- cluster:: --test-threads=256

fidelity: ## the load generator's figures against known truths, in two minutes
	@scripts/setup wrk nginx
	cargo test --release --locked -p tollgate --test fidelity -- --nocapture --test-threads=1

fuzz: ## parsers, the gateway and the WAF engine against second readings, on made-up inputs, 8 seconds each; 2,000 requests against libmodsecurity
	@scripts/setup g++ go libmodsecurity-dev modsecurity-crs
	@scripts/fuzz
	@scripts/waf-differential 2000
	@scripts/waf-differential 2000 1 packaged

differential: ## the WAF engine against libmodsecurity and Coraza on 100,000 mutated requests, and the drop-in below nginx: an hour
	@scripts/setup gcc go libmodsecurity-dev
	@scripts/waf-differential 100000
	@benches/drop-in

bench: packages ## figures and costs beside those of the peers, in turns: an hour
	@scripts/setup wrk apache2-utils nghttp2-client gcc
	@cargo build --quiet --release --locked -p tollgate
	@benches/run cpu-per-request load load-http2 origin idle
	@benches/load
	cargo test --locked -p tollgate-gateway --test gateway -- --ignored --nocapture reload_under_load_loses_no_request_of_100_000
	@benches/run gateway gateway-tls gateway-http2
	@benches/attacks
	@benches/tune
	@benches/run drop-in

soak: ## the gateway under reloads, leaving clients and dying backends: 20 minutes
	cargo test --release --locked -p tollgate-gateway --test gateway -- --ignored --nocapture nothing_fails_or_grows_over_a_long_time

truth: packages ## prices that are known beforehand, and the same prices with other seeds: an hour
	@scripts/setup jq
	@cargo build --quiet --release --locked -p tollgate
	@benches/truth
	@benches/seeds

batch: packages ## commits that cost more, planted in a history of twelve, found and named: ten minutes
	@scripts/setup jq git gcc
	@cargo build --quiet --release --locked -p tollgate
	@benches/batch

clean:
	cargo clean
