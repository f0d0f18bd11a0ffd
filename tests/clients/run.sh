#!/usr/bin/env bash
# Runs the clients in other languages against a running server:
#
#     tests/clients/run.sh ADDRESS
#
# What they need is installed under target/clients/.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 ADDRESS" >&2
    exit 2
fi
address=$1
clients=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=$clients/../../target/clients

echo "== Python"
python3 -m venv "$target/python"
"$target/python/bin/pip" install --quiet --disable-pip-version-check -r "$clients/python/requirements.txt"
"$target/python/bin/python" "$clients/python/client.py" "$address"

echo "== Node.js"
mkdir -p "$target/node"
cp "$clients/node/package.json" "$clients/node/package-lock.json" "$target/node/"
(cd "$target/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
NODE_PATH=$target/node/node_modules node "$clients/node/client.js" "$address"
