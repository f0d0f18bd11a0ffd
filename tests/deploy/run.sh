#!/usr/bin/env bash
# Every quick check of what Remuda is deployed with; installs its tools into target/deploy/.
#
#     tests/deploy/run.sh [BINARY]     # with a remuda, it checks the configurations too, and serves with them
#
# Those that run things are apart: image.sh, prometheus.sh, and reproducible.sh, which is slow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf '== %s\n' "$*"; }
binary=${1:-}
[ -z "$binary" ] || binary=$(realpath "$binary")
target=$PWD/target/deploy
mkdir -p "$target"

say "tools"
missing=()
command -v promtool >/dev/null || missing+=(prometheus)
command -v systemd-analyze >/dev/null || missing+=(systemd)
if [ ${#missing[@]} -gt 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
requirements=tests/deploy/requirements.txt
if ! cmp -s "$requirements" "$target/installed.txt"; then
    rm -rf "$target/venv" "$target/installed.txt"
    python3 -m venv "$target/venv"
    "$target/venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    # An old release of docker-compose, for the specification that lies in it.
    "$target/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$target" docker-compose==1.29.2
    (cd "$target" && python3 -m zipfile -e docker_compose-1.29.2-*.whl compose)
    cp "$requirements" "$target/installed.txt"
fi
PATH=$target/venv/bin:$PATH

say "YAML"
yamllint --strict -d '{extends: default, rules: {line-length: {max: 140}, document-start: disable, braces: {max-spaces-inside: 1}, comments: {min-spaces-from-content: 1}}}' \
    deploy buf.yaml

say "Dockerfile"
hadolint Dockerfile
scan() { checkov --skip-download --quiet --compact "$@" </dev/null; }
scan --framework dockerfile --file Dockerfile

say "Compose"
python3 tests/deploy/compose.py "$target/compose/compose/config/compose_spec.json"

say "Kubernetes"
rm -rf "$target/rendered"
python3 tests/deploy/manifests.py "$target/rendered"
scan --framework kubernetes --config-file deploy/kubernetes/checkov.yaml --directory "$target/rendered"
for overlay in example secured; do
    if [ -e "$target/rendered/$overlay.yaml" ]; then
        scan --framework kubernetes --file "$target/rendered/$overlay.yaml"
    fi
done

say "systemd"
unit=$target/remuda.service
# The program need not be installed here for the rest to be checked.
sed 's|/usr/local/bin/remuda|/bin/true|' deploy/remuda.service >"$unit"
systemd-analyze verify "$unit"
systemd-analyze security --offline=true --threshold=20 "$unit" | tail -n 1
# With what kinds of other users need.
sed -i -E 's/^#(CapabilityBoundingSet|AmbientCapabilities|SystemCallFilter|ProtectProc|RuntimeDirectoryMode)=/\1=/' "$unit"
systemd-analyze verify "$unit"
systemd-analyze security --offline=true --threshold=30 "$unit" | tail -n 1

say "Prometheus"
promtool check config deploy/prometheus/prometheus.yml >/dev/null
promtool test rules deploy/prometheus/tests/*.yml >/dev/null
python3 deploy/prometheus/prometheusrule.py --check
python3 tests/deploy/runbook.py

say "Grafana"
python3 deploy/grafana/generate.py --check

say "API"
buf lint
buf breaking --against proto/buf.baseline.binpb

say "dependencies"
python3 tests/deploy/licences.py
if command -v cargo-deny >/dev/null; then
    cargo deny check licenses bans sources
fi

if [ -n "$binary" ]; then
    say "configurations"
    "$binary" config check deploy/container.toml
    python3 tests/deploy/configurations.py "$binary" "$target/rendered"
fi
say "the deployment is sound"
