#!/usr/bin/env bash
# Runs the clients in other languages, plain and with gzip, and then stops and restarts replicas under their load:
#
#     tests/clients/run.sh BINARY            # starts all servers that it needs from this remuda
#     tests/clients/run.sh BINARY ADDRESS    # the same, but those that need no config use the one at ADDRESS
#
# Prints a line for each client and variant, runs all of them, and exits with 1 if one failed. Needs Python 3, Node.js and npm;
# everything else is installed: Debian's packages for Go by apt, libraries for the other two under target/clients/.
set -euo pipefail

[ $# -eq 1 ] || [ $# -eq 2 ] || { echo "usage: $0 BINARY [ADDRESS]" >&2; exit 2; }
remuda=$(realpath "$1")
address=${2:-}
clients=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$clients/../../target/clients"
target=$(cd "$clients/../../target/clients" && pwd)
work=$(mktemp -d)
servers=()
cleanup() {
    if [ ${#servers[@]} -gt 0 ]; then
        kill -TERM "${servers[@]}" 2>/dev/null || true
        for _ in $(seq 50); do
            kill -0 "${servers[@]}" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "${servers[@]}" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# --- The clients. Each installation is skipped if it is up to date.
install_python() {
    local wanted=$clients/python/requirements.txt
    cmp -s "$wanted" "$target/python/installed.txt" && return
    python3 -m venv "$target/python"
    "$target/python/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$target/python/installed.txt"
}

install_node() {
    local wanted=$clients/node/package-lock.json
    cmp -s "$wanted" "$target/node/installed.json" && return
    mkdir -p "$target/node"
    cp "$clients/node/package.json" "$wanted" "$target/node/"
    (cd "$target/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    cp "$wanted" "$target/node/installed.json"
}

install_go() {
    local packages=(golang-go golang-google-grpc-dev golang-google-genproto-dev golang-google-protobuf-dev
        golang-github-golang-protobuf-1-5-dev libprotobuf-dev protobuf-compiler protoc-gen-go-1-5 protoc-gen-go-grpc)
    dpkg -s "${packages[@]}" >/dev/null 2>&1 && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

# Generates the stubs, and builds with Debian's libraries and no others.
build_go() {
    local file options=()
    mkdir -p "$work/go/src/client"
    cp "$clients"/go/*.go "$work/go/src/client/"
    cd "$clients/../../proto"
    for file in remuda/v1/*.proto; do
        options+=("--go_opt=M$file=remuda/v1" "--go-grpc_opt=M$file=remuda/v1")
    done
    protoc -I . --go_out="$work/go/src" --go-grpc_out="$work/go/src" "${options[@]}" remuda/v1/*.proto
    cd "$work/go"
    GO111MODULE=off GOPATH=$work/go:/usr/share/gocode GOCACHE=$target/go-cache GOFLAGS=-trimpath \
        go build -o "$work/go-client" client
}

# --- The servers.
# Starts one with these arguments, and sets `started` to its address; to nothing if it does not start.
start_server() {
    local log=$work/server-${#servers[@]}.log pid
    "$remuda" serve --listen 127.0.0.1:0 --http off --log-format json "$@" 2>"$log" &
    pid=$!
    servers+=("$pid")
    for _ in $(seq 100); do
        started=$(sed -n 's/.*"message":"serving".*"grpc":"\([^"]*\)".*/\1/p' "$log" | head -n 1)
        [ -z "$started" ] || return 0
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "a server did not start: serve $*"
    cat "$log"
}

write_compressing_config() {
    cat <<EOF
[server]
compression = ["zstd", "gzip"]

[kinds.echo]
command = ["$remuda", "worker", "echo"]
min = 2
EOF
}

# --- The runs.
failed=0
nowhere=127.0.0.1:1  # Stands for a server that did not start: its runs fail.
# run TIMEOUT NAME COMMAND...: prints a line, and what the command said if it failed.
run() {
    local limit=$1 name=$2 begin=$SECONDS
    shift 2
    if timeout --kill-after=10 "$limit" "$@" >"$work/output" 2>&1; then
        echo "ok $name ($(grep -c '^ok ' "$work/output") checks, $((SECONDS - begin)) s)"
    else
        failed=$((failed + 1))
        echo "FAILED $name"
        sed 's/^/    /' "$work/output"
    fi
}

# client_runs NAME COMMAND...
client_runs() {
    local name=$1
    shift
    run 120 "$name, plain" "$@" "$address" identity identity
    run 120 "$name, gzip requests, plain answers" "$@" "$address" gzip identity
    run 120 "$name, gzip requests, gzip answers" "$@" "$compressing" gzip gzip
}

install_python
install_node
install_go
(build_go)
python=$target/python/bin/python
export NODE_PATH=$target/node/node_modules

cd "$work"
if [ -z "$address" ]; then
    start_server
    address=${started:-$nowhere}
fi
write_compressing_config >"$work/compressing.toml"
start_server --config "$work/compressing.toml"
compressing=${started:-$nowhere}

client_runs "Python" "$python" "$clients/python/client.py"
client_runs "Node.js" node "$clients/node/client.js"
client_runs "Go" "$work/go-client"
run 300 "Python, replicas" "$python" "$clients/replicas.py" "$remuda" "$python" "$clients/python/load.py"
run 300 "Node.js, replicas" "$python" "$clients/replicas.py" "$remuda" node "$clients/node/load.js"
run 300 "Go, replicas" "$python" "$clients/replicas.py" "$remuda" "$work/go-client" load

[ "$failed" -eq 0 ] || { echo "$failed runs failed"; exit 1; }
