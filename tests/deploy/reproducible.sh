#!/usr/bin/env bash
# Builds the release twice, in two directories of different names, and compares: the same source gives the same bytes.
#
#     tests/deploy/reproducible.sh [WORK]    # WORK is kept, to go on where it stopped; takes two whole builds
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=$(mkdir -p "${1:-target/reproducible}" && realpath "${1:-target/reproducible}")
sysroot=$(rustc --print sysroot)
git archive --output="$work/source.tar" HEAD Cargo.toml Cargo.lock build.rs proto src tests benches
build() { # DIRECTORY
    rm -rf "$1"/{src,proto,tests,benches}
    mkdir -p "$1"
    tar -x -f "$work/source.tar" -C "$1"
    # Paths end up in panic messages; these say the same wherever it was built.
    (
        cd "$1"
        unset CARGO_TARGET_DIR
        export RUSTFLAGS="--remap-path-prefix=$1=/src --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$sysroot=/rust"
        nice -n 19 cargo build --quiet --release --locked --bin remuda
    )
    sha256sum "$1/target/release/remuda"
}
build "$work/one" | tee "$work/one.sum"
build "$work/another-directory" | tee "$work/another.sum"
one=$(cut -d ' ' -f 1 "$work/one.sum")
[ "$one" = "$(cut -d ' ' -f 1 "$work/another.sum")" ] || { echo "FAILED: the two differ" >&2; exit 1; }
! grep -q "$work" "$work/one/target/release/remuda" || { echo "FAILED: it knows where it was built" >&2; exit 1; }
echo "the same bytes, twice: $one"
