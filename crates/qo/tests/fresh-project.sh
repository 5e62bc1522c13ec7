#!/bin/sh
# Compiles and runs the program of crates/qo/README.md in a new project outside the workspace, as a user would.
# Works offline, with the versions of Cargo.lock. Builds into a directory of its own, so that it waits for no other build.
set -eu

root=$(cd "$(dirname "$0")/../../.." && pwd)
target="${CARGO_TARGET_DIR:-$root/target}/fresh-project"
project="$target/project"

rm -rf "$project"
mkdir -p "$project/src"
cp "$root/Cargo.lock" "$project/Cargo.lock"
cat > "$project/Cargo.toml" <<TOML
[package]
name = "fresh-project"
version = "0.1.0"
edition = "2024"

[dependencies]
qo = { path = "$root/crates/qo" }
serde = { version = "1", features = ["derive"] }
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }

[profile.dev]
debug = false

[workspace]
TOML
awk '/^```rust$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$root/crates/qo/README.md" > "$project/src/main.rs"

cd "$project"
output=$(cargo run --offline --target-dir "$target" "$@")
echo "$output"
if [ "$output" != "sending to ada@example.org, attempt 1
1 completed" ]; then
    echo "fresh-project: unexpected output" >&2
    exit 1
fi
