#!/bin/sh
# Compiles and runs the program of crates/qo/README.md in a new project outside the workspace, as a user would. The samples of
# README.md and docs/guides/ are compiled too, as the library of that project, because they are not whole programs.
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
bytes = "1"
# \`test-util\` is for a sample in docs/guides/workers.md.
qo = { path = "$root/crates/qo", features = ["test-util"] }
serde = { version = "1", features = ["derive"] }
serde_json = "1"
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }

[profile.dev]
debug = false

[workspace]
TOML
awk '/^```rust$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$root/crates/qo/README.md" > "$project/src/main.rs"
cp "$root/crates/qo/tests/fresh-project/prelude.rs" "$project/src/lib.rs"
(
    cd "$root"
    awk '
        /^```rust$/ {
            inside = 1
            number++
            print "\n// " FILENAME
            print "async fn sample_" number "(given: Given) -> Result<(), Box<dyn std::error::Error>> {"
            print "let Given { queue, email, change, order, file, bytes } = given;"
            next
        }
        /^```$/ && inside { inside = 0; print "; Ok(()) }"; next }
        inside
    ' README.md docs/guides/*.md
) >> "$project/src/lib.rs"

cd "$project"
output=$(cargo run --offline --target-dir "$target" "$@")
echo "$output"
if [ "$output" != "sending to ada@example.org, attempt 1
1 completed" ]; then
    echo "fresh-project: unexpected output" >&2
    exit 1
fi
