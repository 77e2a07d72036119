# What a person types. Each target sets itself up.

.PHONY: run test lint bench clean

run: ## price nginx and ModSecurity on this machine, in about 90 seconds
	@scripts/setup
	@cargo run --quiet --release --locked -p tollgate -- run

test: lint ## everything that the project checks
	cargo test --workspace --locked

lint: ## formatting, lints and documentation, where every warning is an error
	@scripts/setup rustfmt clippy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

bench: ## tollgate's figures beside those of wrk, in turns
	@scripts/setup
	@cargo build --quiet --release --locked -p tollgate
	@benches/cpu-per-request

clean:
	cargo clean
