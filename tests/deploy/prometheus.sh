#!/usr/bin/env bash
# Puts Remuda under load, has a real Prometheus scrape it every second, and runs the whole dashboard against that.
#
#     tests/deploy/prometheus.sh BINARY           # starts this remuda with tests/deploy/load.toml
#     tests/deploy/prometheus.sh BINARY ADDRESS   # BINARY is the client of a running one; ADDRESS is its HTTP side, and
#                                                 # REMUDA_ENDPOINT its gRPC side
#
# Ends within two minutes in any case, and takes everything that it started with it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

[ $# -ge 1 ] || { echo "usage: $0 BINARY [HTTP_ADDRESS]" >&2; exit 2; }
remuda=$(realpath "$1")
http=${2:-}
# Workers are found by this name.
PATH=$(dirname "$remuda"):$PATH
work=$(mktemp -d)
started=()
cleanup() {
    if [ ${#started[@]} -gt 0 ]; then
        kill -TERM "${started[@]}" 2>/dev/null || true
        # Remuda lets its queries end; a second signal says that nobody waits for them.
        sleep 1.5
        kill -TERM "${started[@]}" 2>/dev/null || true
        for _ in $(seq 50); do
            kill -0 "${started[@]}" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "${started[@]}" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
fail() { echo "FAILED: $*" >&2; tail -n 20 "$work"/*.log >&2; exit 1; }
field() { sed -n "s/.*\"message\":\"serving\".*\"$1\":\"\([^\"]*\)\".*/\1/p" "$work/remuda.log" | head -n 1; }

if [ -z "$http" ]; then
    "$remuda" serve --config tests/deploy/load.toml --log-format json 2>"$work/remuda.log" &
    started+=($!)
    for _ in $(seq 100); do [ -n "$(field grpc)" ] && break; sleep 0.1; done
    http=$(field http)
    REMUDA_ENDPOINT=$(field grpc)
    export REMUDA_ENDPOINT
    [ -n "$http" ] || fail "remuda did not start"
fi

# --- The load: everything that a panel shows, over and over.
run() { timeout 20 "$remuda" "$@" >/dev/null 2>&1 || true; }
load() {
    trap 'exit 0' TERM
    while :; do
        for _ in 1 2 3; do run run --type plain '{"stream":3,"delay_ms":5}' & done
        run run --type other '{"hello":"world"}'
        run run --type fragile '{"crash":true}' &
        run run --type plain '{"fail":"on purpose","retryable":true}' &
        run run --type plain '{"no":"kind"}' --kind missing
        id=$("$remuda" submit --type plain '{"stream":1000,"delay_ms":20}' 2>/dev/null || true)
        sleep 0.3
        [ -z "$id" ] || run cancel "$id"
        wait
    done
}
load &
started+=($!)

# --- Prometheus, on a free port, with the real rules.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cp deploy/prometheus/alerts.yml deploy/prometheus/recording.yml "$work/"
sed -e 's/: 15s$/: 1s/' -e 's/scrape_timeout: 10s/scrape_timeout: 1s/' -e "s/remuda:9090/$http/" \
    deploy/prometheus/prometheus.yml >"$work/prometheus.yml"
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" --web.listen-address="127.0.0.1:$port" \
    >"$work/prometheus.log" 2>&1 &
started+=($!)

timeout 100 python3 tests/deploy/dashboard.py "http://127.0.0.1:$port" --wait 60 || fail "the dashboard is not whole"

# --- The rules have all been evaluated without an error, on real data.
python3 - "http://127.0.0.1:$port" <<'PY' || fail "the rules do not work"
import json, sys, urllib.request
answer = json.load(urllib.request.urlopen(f"{sys.argv[1]}/api/v1/rules", timeout=10))
rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]
bad = [rule for rule in rules if rule["health"] != "ok"]
for rule in bad:
    print(rule["name"], rule["health"], rule.get("lastError"), file=sys.stderr)
print(f"{len(rules)} rules, {len(bad)} with errors")
sys.exit(1 if bad or not rules else 0)
PY
