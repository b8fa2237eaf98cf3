# Everything CI does, by name. `just` alone lists the recipes.

default:
    @just --list

# All tests, as the README says.
test:
    cargo test --workspace

# The inner loop: format, lints, and the tests that take seconds.
quick:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo nextest run --workspace -E 'not (test(crash) | test(killed) | test(load) | binary(killed) | binary(kill) | binary(plan_is_run) | binary(baseline))'

# Lints and documentation, which CI checks before the tests.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Take the current output of the case folders as expected; read the diff before you commit it.
accept:
    INSTA_UPDATE=always cargo test -p rye-snapshots --test cases

# Rewrite the generated parts of the reference pages; read the diff before you commit it.
docs:
    ACCEPT_DOCS=1 cargo test -p rye-snapshots --test language
    ACCEPT_DOCS=1 cargo test -p rye-cli --bin rye reference

# Exact token counts: what the feature that is off by default changes.
tokenizers:
    cargo test -p rye-compiler --features tokenizers --lib -- count:: plan_names_its_tokenizer

# Claims of check, plan and its matrix against an evaluator of their own, on many generated projects. Another seed gives other projects.
differential projects="1000" seed="0":
    RYE_DIFFERENTIAL={{projects}} RYE_DIFFERENTIAL_SEED={{seed}} cargo test --profile bench -p rye-compiler --test differential --test diff_directions --test fix_slips -- --nocapture

# The money theorem on many random trees of threads, their sums, and the number of events of each kind. Another seed gives other trees.
money cases="100000" seed="0":
    RYE_MONEY_CASES={{cases}} RYE_MONEY_SEED={{seed}} cargo test --profile bench -p rye-engine --lib -- --nocapture session::tests::bounds

# Every state that a crash can leave, where `cargo test` checks a sample.
crash:
    RYE_EVERY_CRASH=1 cargo nextest run -p rye-engine -E 'test(crash::)'
    RYE_EVERY_CRASH=1 cargo nextest run -p rye-cli --test killed

# Files and processes that remain after 200 runs and 50 kills.
leftovers runs="200" kills="50":
    RYE_RUNS={{runs}} RYE_KILLS={{kills}} cargo test -p rye-cli --test left_behind

# End to end against an independent mock server.
e2e:
    e2e/run

# The system call filter for aarch64 on an aarch64 kernel in an emulator, with packages of Debian.
aarch64:
    e2e/aarch64/run

# Allocations of turn 1,000, child 4,000 and their early counterparts, where `cargo test` stops at turn 300 and child 400.
growth:
    RYE_GROWTH=whole cargo test -p rye --test growth -- --nocapture
