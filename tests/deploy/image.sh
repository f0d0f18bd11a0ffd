#!/usr/bin/env bash
# Runs the image without a container engine: carries out the Dockerfile, and starts what comes of it as a container would.
#
#     tests/deploy/image.sh BINARY     # with this remuda in place of what `cargo build` would make
#     tests/deploy/image.sh --build    # with what it makes, in CARGO_TARGET_DIR if that is set: release/remuda is there then
#
# It is process 1 of its own namespaces, user 10001, with no rights, on a read-only root with a tmpfs on /tmp. It must
# serve a query, answer its health check, leave no zombie of orphans that it inherits, and exit with 0 on SIGTERM; and
# be as well with TLS and tokens.
# Needs root. If a docker engine answers, the image is also built with it and run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

[ $# -eq 1 ] || { echo "usage: $0 BINARY | --build" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "$0 needs root, for the namespaces" >&2; exit 2; }
binary=$1
[ "$binary" = --build ] || binary=$(realpath "$binary")
work=$(mktemp -d)
chmod 755 "$work"
container=
cleanup() {
    # Without its process 1 the whole namespace is gone, its mounts included.
    [ -z "$container" ] || kill -KILL "$(child)" "$container" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
child() { tr -d ' ' <"/proc/$container/task/$container/children" 2>/dev/null; }
fail() { echo "FAILED: $*" >&2; sed 's/^/    log: /' "$work/log" 2>/dev/null | tail -n 20 >&2; exit 1; }
eventually() { # SECONDS WHAT COMMAND...
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do [ "$SECONDS" -lt "$until" ] || fail "$what"; sleep 0.2; done
}

# --- The Dockerfile's steps, with stand-ins for what must not touch this machine.
mkdir -p "$work/bin" "$work/root/etc"
touch "$work/root/etc/passwd" "$work/root/etc/group"
for tool in groupadd useradd; do
    # shellcheck disable=SC2016 # The stand-in is to read $STAGE_ROOT, not we.
    printf '#!/bin/sh\nexec %s --prefix "$STAGE_ROOT" "$@"\n' "$(PATH=$PATH:/usr/sbin command -v $tool)" >"$work/bin/$tool"
done
if [ "$binary" != --build ]; then
    # Reads the manifest, so that a target without its file is noticed; then "builds" the given program.
    cat >"$work/bin/cargo" <<STUB
#!/bin/sh
set -e
"$(command -v cargo)" metadata --no-deps --locked --format-version 1 >/dev/null
mkdir -p target/release
cp "$binary" target/release/remuda
STUB
elif [ -n "${CARGO_TARGET_DIR:-}" ]; then
    # Relative to where we are, not to the clean directory that it builds in.
    CARGO_TARGET_DIR=$(realpath -m "$CARGO_TARGET_DIR")
    export CARGO_TARGET_DIR
    printf '#!/bin/sh\n"%s" "$@" && mkdir -p target/release && cp "%s/release/remuda" target/release/\n' \
        "$(command -v cargo)" "$CARGO_TARGET_DIR" >"$work/bin/cargo"
fi
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH nice python3 tests/deploy/dockerfile.py "$work"
root=$work/root
setting() { python3 -c "import json, sys; s = json.load(open('$work/settings.json')); print(eval(sys.argv[1]))" "$1"; }
grep -q '^remuda:[^:]*:10001:10001:' "$root/etc/passwd" || fail "the user remuda is not 10001"
[ "$(setting 's["user"]')" = 10001:10001 ] || fail "the image does not run as 10001"

# --- What the base image brings along: the libraries, and the few programs that the orphans' worker needs.
add() { # Files, under their own names.
    local file
    for file in "$@"; do [ -e "$root$file" ] || install -D "$file" "$root$file"; done
}
libraries() { ldd "$@" | grep -o '/[^ :]*\.so[^ :]*' | sort -u; }
programs=()
for program in env sh sleep setsid sed; do programs+=("$(command -v $program)"); done
mapfile -t needed < <(libraries "$root/usr/local/bin/remuda" "${programs[@]}")
add "${programs[@]}" "${needed[@]}"
[ -e "$root/bin/sh" ] || install -D "$(command -v sh)" "$root/bin/sh"
mkdir -p "$root"/{proc,dev,tmp}
touch "$root"/dev/{null,zero,urandom}
# As somebody's own image would: a worker and a configuration on top.
install -D tests/deploy/orphan_worker.sh "$root/srv/worker/orphan_worker.sh"
cat >>"$root/etc/remuda/remuda.toml" <<'TOML'

[kinds.orphan]
command = ["/bin/sh", "/srv/worker/orphan_worker.sh"]
transport = "stdio"
types = ["orphan"]
TOML
echo "files in the image beside the base's own:"
(cd "$root" && find etc/remuda usr/local usr/share/doc -type f | sed 's/^/  /')

# --- The container.
environment=(PATH=/usr/local/bin:/usr/bin:/bin)
while read -r pair; do environment+=("$pair"); done < <(setting '"\n".join(f"{k}={v}" for k, v in s["env"].items())')
read -ra command <<<"$(setting '" ".join(s["entrypoint"] + s["cmd"])')"
cat >"$work/enter" <<'SH'
set -eu
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
for device in null zero urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
ip link set lo up
exec setpriv --no-new-privs chroot --userspec=10001:10001 --groups= "$root" "$@"
SH
read -ra healthcheck <<<"$(setting '" ".join(s["healthcheck"])')"
start() {
    : >"$work/log"
    unshare --pid --fork --mount --net --uts --ipc sh "$work/enter" "$root" \
        "$(command -v env)" -i "${environment[@]}" "${command[@]}" >"$work/log" 2>&1 &
    container=$!
    eventually 10 "it did not start" grep -q '"message":"serving"' "$work/log"
    server=$(child)
}
stop() {
    local began=$SECONDS code=0
    kill -TERM "$server"
    wait "$container" || code=$?
    container=
    [ "$code" -eq 0 ] || fail "it exited with $code on SIGTERM"
    echo "stopped on SIGTERM with 0 within $((SECONDS - began + 1)) s"
}
# As `docker exec` does: in the container, with the container's variables.
inside() {
    nsenter --target "$server" --mount --pid --net --root --wd=/ --setuid 10001 --setgid 10001 \
        "$(command -v env)" -i "${environment[@]}" "$@"
}
is_well() {
    eventually 20 "its health check fails" inside "${healthcheck[@]}"
    echo "healthy: ${healthcheck[*]}"
    local answer
    answer=$(inside remuda run --kind echo '{"hello":"world"}')
    [[ $answer == *'{"hello":"world"}'* ]] || fail "it answered: $answer"
    echo "served a query"
}

start
[ "$(awk '/^NSpid:/ {print $NF}' "/proc/$server/status")" = 1 ] || fail "it is not process 1"
awk '/^(Uid|CapEff|NoNewPrivs):/ {print "  " $0}' "/proc/$server/status"
is_well
! inside /bin/sh -c 'echo x >/etc/remuda/x' 2>/dev/null || fail "its root can be written to"
echo "its root is read-only"

# Processes may go while they are listed, which is no failure.
children() { { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v parent="$server" '$4 == parent {print $2 $3}'; }
zombies() { children | grep -c 'Z$' || true; }
orphans() { children | grep -c '^(sleep)[^Z]' || true; }
for _ in 1 2 3; do inside remuda run --type orphan '{}' >/dev/null; done
[ "$(orphans)" -gt 0 ] || fail "no orphan came to process 1: this test shows nothing"
! inside remuda run --type orphan '{"exit":true}' >/dev/null 2>&1 || fail "the worker did not exit"
no_orphans() { [ "$(orphans)" -eq 0 ]; }
no_zombies() { [ "$(zombies)" -eq 0 ]; }
eventually 10 "orphans live on" no_orphans
eventually 5 "orphans were not reaped: they are zombies now" no_zombies
echo "orphans are reaped"

# --- The same with TLS and tokens, as docs/deploy.md says: the health check, probes without a token, scrapes with one.
secrets=$root/run/secrets/remuda
mkdir -p "$secrets"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=remuda \
    -addext subjectAltName=DNS:remuda -addext basicConstraints=critical,CA:FALSE \
    -keyout "$secrets/tls.key" -out "$secrets/tls.crt" 2>/dev/null
token=$(openssl rand -hex 24)
printf 'probe submit,read %s\n' "$token" >"$secrets/tokens"
printf '%s\n' "$token" >"$secrets/read-token"
chmod 400 "$secrets"/*
chown 10001:10001 "$secrets"/*
cat >"$root/etc/remuda/secured.toml" <<'TOML'
[server]
listen = "0.0.0.0:50051"
http = "0.0.0.0:9090"
tls_cert = "/run/secrets/remuda/tls.crt"
tls_key = "/run/secrets/remuda/tls.key"
tokens = "/run/secrets/remuda/tokens"
http_open_paths = ["/livez", "/readyz"]

[kinds.echo]
command = ["remuda", "worker", "echo"]
min = 1
TOML
refusal=$(inside remuda config check /etc/remuda/secured.toml 2>&1) && fail "workers may read the secrets"
[[ $refusal == *"could read /run/secrets/remuda/tokens"* ]] || fail "it said: $refusal"
stop
environment+=(REMUDA_CONFIG=/etc/remuda/secured.toml REMUDA_ENDPOINT=https://127.0.0.1:50051
    REMUDA_TLS_CA=/run/secrets/remuda/tls.crt REMUDA_TLS_NAME=remuda)
if python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1)'; then
    echo 'landlock_read = []' >>"$root/etc/remuda/secured.toml"
else
    echo "this kernel has no Landlock: the workers are trusted with the secrets"
    environment+=(REMUDA__SERVER__WORKERS_MAY_READ_SECRETS=true)
fi
start
! inside "${healthcheck[@]}" || fail "it is healthy for somebody without a token"
environment+=(REMUDA_TOKEN_FILE=/run/secrets/remuda/read-token)
is_well
ask() { # PATH [TOKEN]: the status code.
    nsenter --target "$server" --net python3 - "$secrets/tls.crt" "$@" <<'PYTHON'
import http.client, ssl, sys

context = ssl.create_default_context(cafile=sys.argv[1])
context.check_hostname = False
connection = http.client.HTTPSConnection("127.0.0.1", 9090, timeout=10, context=context)
connection.request("GET", sys.argv[2], headers={"Authorization": f"Bearer {token}" for token in sys.argv[3:]})
print(connection.getresponse().status)
PYTHON
}
codes="$(ask /livez) $(ask /readyz) $(ask /metrics) $(ask /metrics "$token")"
[ "$codes" = "200 200 401 200" ] || fail "/livez, /readyz, /metrics, and /metrics with a token: $codes"
echo "with TLS and tokens: probes need no token, scrapes do"
stop

# --- The real thing, where there is an engine.
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    docker build --quiet --tag remuda:test .
    id=$(docker run --detach --rm --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges remuda:test)
    trap 'docker rm --force "$id" >/dev/null; cleanup' EXIT
    healthy() { docker exec "$id" remuda health --quiet; }
    eventually 30 "the container is not healthy" healthy
    docker exec "$id" remuda run '{"hello":"docker"}'
    docker stop --time 60 "$id" >/dev/null
    echo "built and run by docker"
else
    echo "no docker engine here: the image itself was not built"
fi
