#!/usr/bin/env bash
# Prints the command that runs a program under a valgrind that knows pidfd_open, which 3.19 does not. Where the system's own is too old, that of
# the next Debian release is unpacked under target/, from the mirror that apt is set up with; nothing of it is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v valgrind >/dev/null; then
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends valgrind >&2
fi
version=$(valgrind --version | sed 's/valgrind-//')
if [ "$(printf '%s\n' 3.21 "$version" | sort -V | head -n 1)" = 3.21 ]; then
    echo valgrind
    exit
fi

suite=trixie
dir=$PWD/target/valgrind
if [ ! -x "$dir/usr/bin/valgrind.bin" ]; then
    rm -rf "$dir"
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    # shellcheck disable=SC2016 # apt is to read $(SITE), not we.
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$dir/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache")
    apt-get "${options[@]}" update >&2
    (cd "$dir" && apt-get "${options[@]}" download valgrind >&2 2>/dev/null && dpkg -x valgrind_*.deb .)
    rm -rf "$dir/lists" "$dir/cache" "$dir"/*.deb
fi
echo "env VALGRIND_LIB=$dir/usr/libexec/valgrind $dir/usr/bin/valgrind.bin"
