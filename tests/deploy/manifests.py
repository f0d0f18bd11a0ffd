"""Checks what deploy/kubernetes says, against Kubernetes' own schemas and against Remuda's configuration.

    manifests.py RENDERED_DIR

Writes the rendered base and overlays to RENDERED_DIR, for other tools to look at. Needs kubernetes-validate and PyYAML,
and kubectl for the rendering; without kubectl the files are checked one by one, and the kustomizations' references.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2] / "deploy/kubernetes"
# The oldest version that the manifests are for, and a recent one.
VERSIONS = ("1.30", "1.34")
OPERATOR = "monitoring.coreos.com/v1"
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
BYTES = {"Mi": 2**20, "Gi": 2**30, "MiB": 2**20, "GiB": 2**30}

problems = []


def expect(condition, problem):
    if not condition:
        problems.append(problem)


def seconds(text):
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)\s*(ms|s|m|h)", text))


def size(text):
    number, unit = re.fullmatch(r"([\d.]+)\s*(\w+)", text).groups()
    return float(number) * BYTES[unit]


def validate(where, documents):
    for document in documents:
        name = f"{where}: {document['kind']} {document['metadata']['name']}"
        if document["apiVersion"] == OPERATOR:
            continue  # The operator's own kinds have no schema here; promtool checks the rules themselves.
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                problems.append(f"{name} ({version}): {error.message}")


def one(documents, kind, name="remuda"):
    found = [d for d in documents if d["kind"] == kind and d["metadata"]["name"].startswith(name)]
    return found[0] if found else None


def check_together(where, documents):
    """Checks that the parts fit each other, which no schema knows."""
    pod = one(documents, "Deployment")["spec"]["template"]
    spec, labels = pod["spec"], pod["metadata"]["labels"]
    container = spec["containers"][0]
    config_map = one(documents, "ConfigMap")
    config = tomllib.loads(config_map["data"]["remuda.toml"])

    volume = next(v for v in spec["volumes"] if v["name"] == "config")
    expect(volume["configMap"]["name"] == config_map["metadata"]["name"], f"{where}: the pod mounts another ConfigMap")
    ports = {port["name"] for port in container["ports"]}
    for service in (d for d in documents if d["kind"] == "Service"):
        expect(service["spec"]["selector"].items() <= labels.items(), f"{where}: a Service selects no pod")
        for port in service["spec"]["ports"]:
            expect(port["targetPort"] in ports, f"{where}: no port {port['targetPort']} in the pod")
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        selector = one(documents, kind)["spec"][field]["matchLabels"]
        expect(selector.items() <= labels.items(), f"{where}: the {kind} selects no pod")

    def longest(key, default):
        return max(seconds(kind.get(key, default)) for kind in config["kinds"].values())

    pause = seconds(config["pool"]["drain_pause"])
    expect(pause >= 5, f"{where}: drain_pause is {pause:.0f} s, too short for the proxies to hear that the pod stops")
    needed = pause + seconds(config["pool"]["drain_timeout"])
    needed += longest("cancel_grace", "2s") + longest("term_grace", "5s")
    grace = spec["terminationGracePeriodSeconds"]
    expect(grace > needed, f"{where}: terminationGracePeriodSeconds is {grace}, a stop may take {needed:.0f}")
    limit, budget = size(container["resources"]["limits"]["memory"]), size(config["pool"]["memory_budget"])
    expect(budget + 2**29 <= limit, f"{where}: memory_budget leaves the server less than 512 MiB of the pod's limit")
    expect(config["server"]["listen"].endswith(":50051"), f"{where}: gRPC is not where the Service sends it")
    expect(config["server"]["http"].endswith(":9090"), f"{where}: HTTP is not where the probes look")


def check_example(where, documents):
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] != "Namespace":
            expect(document["metadata"].get("namespace") == "remuda", f"{where}: {name} has no namespace")
    monitor = one(documents, "ServiceMonitor")["spec"]
    services = [d for d in documents if d["kind"] == "Service"]
    wanted = monitor["selector"]["matchLabels"].items()
    named = {port["name"] for s in services if wanted <= s["metadata"]["labels"].items() for port in s["spec"]["ports"]}
    expect(monitor["endpoints"][0]["port"] in named, f"{where}: the ServiceMonitor finds no port to scrape")
    scaled = one(documents, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["metric"]["name"]
    adapter = yaml.safe_load((ROOT / "prometheus-adapter.yaml").read_text())["rules"]["custom"][0]
    expect(adapter["name"]["as"] == scaled, f"{where}: the autoscaler asks for a metric that the adapter does not make")
    expect("replicas" not in one(documents, "Deployment")["spec"], f"{where}: replicas would fight the autoscaler")


def check_secured(documents):
    """TLS and tokens on the server's side, and all who talk to it know of them."""
    spec = one(documents, "Deployment")["spec"]["template"]["spec"]
    container = spec["containers"][0]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    mount = next(m for m in container["volumeMounts"] if m["name"] == "secrets")
    for name in ("REMUDA__SERVER__TLS_CERT", "REMUDA__SERVER__TLS_KEY", "REMUDA__SERVER__TOKENS", "REMUDA_TOKEN_FILE"):
        expect(variables[name].startswith(mount["mountPath"] + "/"), f"secured: {name} is not in the Secret")
    expect(variables["REMUDA__SERVER__ALLOW_INSECURE"] == "false", "secured: what is protected need not be insecure")
    open_paths = tomllib.loads("paths = " + variables["REMUDA__SERVER__HTTP_OPEN_PATHS"])["paths"]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        asked = container[probe]["httpGet"]
        expect(asked.get("scheme") == "HTTPS", f"secured: the {probe} does not speak TLS")
        expect(asked["path"] in open_paths, f"secured: the {probe} would need a token")
    endpoint = one(documents, "ServiceMonitor")["spec"]["endpoints"][0]
    expect(endpoint.get("scheme") == "https" and "authorization" in endpoint, "secured: scrapes would be refused")
    for service in (d for d in documents if d["kind"] == "Service"):
        protocols = [port.get("appProtocol") for port in service["spec"]["ports"]]
        expect("kubernetes.io/h2c" not in protocols, "secured: gRPC is no plain text")


def check_references():
    """Every file that a kustomization names is there, and every file that is there is named."""
    for kustomization in ROOT.rglob("kustomization.yaml"):
        here, text = kustomization.parent, yaml.safe_load(kustomization.read_text())
        named = list(text.get("resources", [])) + list(text.get("components", []))
        named += [patch["path"] for patch in text.get("patches", []) if "path" in patch]
        named += [file for maps in text.get("configMapGenerator", []) for file in maps.get("files", [])]
        for name in named:
            target = here / name
            found = target.is_file() or (target / "kustomization.yaml").is_file()
            expect(found, f"{kustomization.relative_to(ROOT)} names {name}, which is not there")
        for file in here.iterdir():
            known = file.name == "kustomization.yaml" or file.name in named
            expect(file.is_dir() or known, f"{kustomization.relative_to(ROOT)} does not name {file.name}")


def load(text):
    return [document for document in yaml.safe_load_all(text) if document]


def main():
    rendered = pathlib.Path(sys.argv[1])
    rendered.mkdir(parents=True, exist_ok=True)
    check_references()
    if shutil.which("kubectl"):
        for name, path in (("base", "base"), ("example", "overlays/example"), ("secured", "overlays/secured")):
            command = ["kubectl", "kustomize", str(ROOT / path)]
            text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
            (rendered / f"{name}.yaml").write_text(text)
            documents = load(text)
            validate(name, documents)
            check_together(name, documents)
            if name != "base":
                check_example(name, documents)
            if name == "secured":
                check_secured(documents)
    else:
        print("no kubectl: the files are checked one by one, and not what kustomize makes of them")
        for kustomization in [*ROOT.glob("base/kustomization.yaml"), *ROOT.glob("components/*/kustomization.yaml")]:
            for name in yaml.safe_load(kustomization.read_text()).get("resources", []):
                validate(name, load((kustomization.parent / name).read_text()))
                shutil.copy(kustomization.parent / name, rendered / name)
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
