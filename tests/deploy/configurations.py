"""Checks every configuration of deploy/kubernetes with the program itself, and starts it, as its pod would.

    configurations.py BINARY RENDERED_DIR

Each has the variables and arguments of its Deployment, its ConfigMap and its Secret in place, and a user without rights;
only the directories and the ports are others. `remuda config check` must find no mistake, the server must come to serve,
and answer its probe and `remuda health` as those of the pod ask. What manifests.py rendered is taken; without it (no
kubectl), what the kustomizations name. As root it takes the pod's user, else one's own. Needs PyYAML and openssl.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
OVERLAYS = {"base": "base", "example": "overlays/example", "secured": "overlays/secured"}
TIMEOUT_SECONDS = 60


class Wrong(Exception):
    """A mistake in a configuration."""


def unrendered(here):
    """The configuration and the parts of the Deployment that a kustomization comes to, without kubectl."""
    kustomization = yaml.safe_load((here / "kustomization.yaml").read_text())
    config, deployments = None, []
    for name in kustomization.get("resources", []) + kustomization.get("components", []):
        if (here / name).is_dir():
            deeper, more = unrendered(here / name)
            config, deployments = deeper or config, deployments + more
    config = here / "remuda.toml" if (here / "remuda.toml").exists() else config
    if (here / "deployment.yaml").exists():
        deployments.append(yaml.safe_load((here / "deployment.yaml").read_text()))
    return config, deployments


def parts(rendered, name):
    """The text of the configuration, and the pods' specifications: one, or patches of it."""
    file = rendered / f"{name}.yaml"
    if not file.exists():
        config, deployments = unrendered(KUBERNETES / OVERLAYS[name])
        return config.read_text(), [deployment["spec"]["template"]["spec"] for deployment in deployments]
    documents = [document for document in yaml.safe_load_all(file.read_text()) if document]
    config = next(document for document in documents if document["kind"] == "ConfigMap")
    deployment = next(document for document in documents if document["kind"] == "Deployment")
    return config["data"]["remuda.toml"], [deployment["spec"]["template"]["spec"]]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def make_secret(directory, group):
    """The files of the Secret as the kubelet puts them there: behind links, for the pods' group."""
    data = directory / "..2026"
    data.mkdir(parents=True)
    for name in ("tls.crt", "tls.key", "ca.crt", "tokens", "read-token"):
        (directory / name).symlink_to(f"..data/{name}")
    (directory / "..data").symlink_to(data.name)
    quiet = {"capture_output": True, "cwd": data}
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    authority = ["-subj", "/CN=authority", "-keyout", "../ca.key", "-out", "ca.crt"]
    subprocess.run(new + authority, check=True, **quiet)
    signed = ["-CA", "ca.crt", "-CAkey", "../ca.key", "-addext", "subjectAltName=DNS:remuda"]
    signed += ["-addext", "basicConstraints=critical,CA:false"]
    subprocess.run(new + signed + ["-subj", "/CN=remuda", "-keyout", "tls.key", "-out", "tls.crt"], check=True, **quiet)
    (directory / "ca.key").unlink()
    reader = "0123456789abcdef" * 3
    (data / "tokens").write_text(f"ops admin {reader[::-1]}\nprobe read {reader}\n")
    (data / "read-token").write_text(reader)
    for file in data.iterdir():
        # 0400 of the manifest, and what fsGroup adds.
        file.chmod(0o440)
        os.chown(file, -1, group)


class Pod:
    """A pod's files below a directory, and what its container would be started with."""

    def __init__(self, binary, place, config, specs):
        self.place, self.user = place, None
        containers = [spec["containers"][0] for spec in specs]
        self.args = next(container["args"] for container in containers if "args" in container)
        self.probe = {}
        for container in containers:
            self.probe |= container.get("readinessProbe", {}).get("httpGet", {})
        ids = next(spec["securityContext"] for spec in specs if "securityContext" in spec)
        if os.geteuid() == 0:
            self.user = (ids["runAsUser"], ids["fsGroup"])
        self.ports = {":50051": f":{free_port()}", ":9090": f":{free_port()}"}
        self.binary = place / "usr/local/bin/remuda"
        self.binary.parent.mkdir(parents=True)
        shutil.copy(binary, self.binary)
        (place / "srv/worker").mkdir(parents=True)
        shutil.copy(ROOT / "examples/python-worker/worker.py", place / "srv/worker")
        (place / "etc/remuda").mkdir(parents=True)
        (place / "etc/remuda/remuda.toml").write_text(self.here(config))
        if any("secret" in volume for spec in specs for volume in spec.get("volumes", [])):
            make_secret(place / "run/secrets/remuda", ids["fsGroup"] if self.user else -1)
        (place / "tmp").mkdir()
        (place / "tmp").chmod(0o1777)
        set_here = {v["name"]: self.here(v["value"]) for container in containers for v in container.get("env", [])}
        self.env = {
            "PATH": f"{self.binary.parent}:/usr/bin:/bin",
            "REMUDA_CONFIG": str(place / "etc/remuda/remuda.toml"),
            "REMUDA_ENDPOINT": "http://127.0.0.1" + self.ports[":50051"],
            **set_here,
            # Nobody waits for it here.
            "REMUDA__POOL__DRAIN_PAUSE": "0s",
        }

    def here(self, text):
        """The same with our directories and ports in place of the pod's."""
        text = re.sub(r"(?<![\w.])/(?:etc/remuda|run/secrets/remuda|srv/worker|tmp)\b", rf"{self.place}\g<0>", text)
        return re.sub(r":(?:50051|9090)\b", lambda port: self.ports[port[0]], text)

    def options(self):
        ids = {"user": self.user[0], "group": self.user[1], "extra_groups": []} if self.user else {}
        return {"env": self.env, "cwd": self.place / "tmp", "text": True, **ids}

    def run(self, *arguments):
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": TIMEOUT_SECONDS}
        ended = subprocess.run([self.binary, *arguments], check=False, **piped, **self.options())
        return ended.returncode, ended.stdout

    def ask_probe(self):
        """As the kubelet does, which does not look at the certificate."""
        scheme = self.probe.get("scheme", "HTTP").lower()
        trusting = ssl._create_unverified_context() if scheme == "https" else None
        url = f"{scheme}://127.0.0.1{self.ports[':9090']}{self.probe['path']}"
        with urllib.request.urlopen(url, timeout=10, context=trusting) as answer:
            return answer.status


def check(pod):
    code, said = pod.run("config", "check", pod.env["REMUDA_CONFIG"])
    if code != 0:
        raise Wrong(f"`remuda config check` refuses it:\n{said}")
    log = pod.place / "log"
    with log.open("w") as output:
        server = subprocess.Popen([pod.binary, *pod.args], stdout=output, stderr=output, **pod.options())
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (health := pod.run("health"))[0] != 0:
            if server.poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"it does not come to serve: {health[1]}\n{log.read_text()[-4000:]}")
            time.sleep(0.1)
        if pod.ask_probe() != 200:
            raise Wrong("its probe is refused")
        server.send_signal(signal.SIGTERM)
        if server.wait(TIMEOUT_SECONDS) != 0:
            raise Wrong(f"it does not stop as it should:\n{log.read_text()[-4000:]}")
    finally:
        server.kill()
        server.wait()
    return said


def main():
    binary, rendered = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    failed = False
    for name in OVERLAYS:
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            try:
                said = check(Pod(binary, pathlib.Path(place), *parts(rendered, name)))
                print(f"{name} serves; {said.strip().rsplit(': ', 1)[-1]}")
            except Wrong as wrong:
                print(f"{name}: {wrong}", file=sys.stderr)
                failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
