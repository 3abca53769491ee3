"""The manifests for Kubernetes are built and valid, and agree with Procfile, compose.yaml and settings."""

import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from config import load_settings
from ops.procfile import ROOT, read_procfile
from tests.engines.platforms import KUBECTL_VARIABLE, VARIABLE
from tests.image.containers import grace_s, read_services
from workers.actors import find_queue_steps

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="make test-image installs it")
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("production", "trial")
VERSIONS = ("1.31", "1.37")
"""The oldest and the newest Kubernetes that the manifests are for."""
PROCESSES = {line.name: line.command for line in read_procfile()}
SERVICES = ("api", "auth")
STOP_SENDING_S = 5
"""How long a service waits until no Service sends requests to it."""
SECRETS = {
    "STORE_SECRET_KEY": "0123456789abcdef",
    "STORE_CATALOG_URL": "postgresql+psycopg://store:password@postgres:5432/store",
    "STORE_REDIS_URL": "redis://:password@redis:6379/0",
    "STORE_SEARCH_URL": "https://user:password@search:9200/store",
}
Manifest = Mapping[str, Any]
overlays = pytest.mark.parametrize("overlay", OVERLAYS)


@cache
def build(overlay: str) -> str:
    """What is applied to a cluster."""
    command = [os.environ[KUBECTL_VARIABLE], "kustomize", str(FOLDER / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def read(overlay: str, kind: str) -> dict[str, Manifest]:
    """The objects of a kind by name."""
    found: list[Manifest] = [*yaml.safe_load_all(build(overlay))]
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


def list_pods(overlay: str) -> dict[str, Manifest]:
    """The pods of all workloads by name."""
    workloads = {**read(overlay, "Deployment"), **read(overlay, "Job")}
    return {name: one["spec"]["template"]["spec"] for name, one in workloads.items()}


def validate(version: str, *paths: Path) -> "subprocess.CompletedProcess[str]":
    """Compare manifests with the schemas of a version; unknown members are errors."""
    program = Path(os.environ[VARIABLE]) / "kubernetes-validate"
    command: list[str | Path] = [program, "--strict", "-k", version, *paths]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid(version: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{overlay}.yaml" for overlay in OVERLAYS]
    for path in paths:
        path.write_text(build(path.stem))
    checked = validate(version, *paths)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_validation_finds_unknown_member(tmp_path: Path) -> None:
    path = tmp_path / "store.yaml"
    path.write_text(build("trial").replace("enableServiceLinks:", "enableServiceLink:"))
    checked = validate(VERSIONS[-1], path)
    assert checked.returncode
    assert "enableServiceLink" in checked.stdout + checked.stderr


@overlays
def test_every_process_has_a_deployment_with_its_command(overlay: str) -> None:
    pods = list_pods(overlay)
    commands = {name: tuple(pod["containers"][0]["args"]) for name, pod in pods.items()}
    assert commands == {**PROCESSES, "migrate": ("python", "-m", "ops", "migrate")}


@overlays
def test_pods_run_as_the_image_user_without_rights(overlay: str) -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for pod in list_pods(overlay).values():
        said = pod["securityContext"]
        assert {said["runAsUser"], said["runAsGroup"], said["fsGroup"]} == {int(user)}
        assert said["runAsNonRoot"]
        assert said["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"].keys() == {"requests", "limits"}


@overlays
def test_settings_are_known_and_valid(overlay: str) -> None:
    (given,) = read(overlay, "ConfigMap").values()
    for name, pod in list_pods(overlay).items():
        (container,) = pod["containers"]
        own = {one["name"]: one["value"] for one in container.get("env", ())}
        settings = load_settings({**given["data"], **SECRETS, **own})
        assert not settings.allow_private_callbacks, name
        embedded = [settings.replica_aws, settings.replica_gcp, settings.areas_url]
        assert all(url.startswith(("s3://", "gs://")) for url in embedded)


@overlays
def test_no_service_sets_a_variable_of_the_store(overlay: str) -> None:
    assert {pod["enableServiceLinks"] for pod in list_pods(overlay).values()} == {False}


@overlays
def test_secrets_are_named_and_never_given(overlay: str) -> None:
    assert read(overlay, "Secret") == {}
    (given,) = read(overlay, "ConfigMap").values()
    assert given["data"].keys() & SECRETS.keys() == set()
    pods = list_pods(overlay)
    for pod in pods.values():
        assert {"secretRef": {"name": "store-secrets"}} in pod["containers"][0]["envFrom"]
    holders = {name for name, pod in pods.items() if any("secret" in one for one in pod["volumes"])}
    assert holders == {*SERVICES}


@overlays
def test_pods_have_the_time_to_end_that_compose_gives(overlay: str) -> None:
    services = read_services()
    for name, pod in list_pods(overlay).items():
        if name in PROCESSES:
            more_s = STOP_SENDING_S if name in SERVICES else 0
            assert pod["terminationGracePeriodSeconds"] == grace_s(services[name]) + more_s, name


@overlays
def test_services_are_probed_at_their_port(overlay: str) -> None:
    (given,) = read(overlay, "ConfigMap").values()
    port = load_settings({**given["data"], **SECRETS}).port
    pods = list_pods(overlay)
    for name, expected in zip(SERVICES, (port, port + 1), strict=True):
        (container,) = pods[name]["containers"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        assert ports["http"] == expected
        paths = {
            probe: container[probe]["httpGet"]["path"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        assert paths == {
            "startupProbe": "/livez",
            "livenessProbe": "/livez",
            "readinessProbe": "/readyz",
        }
        assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]


@overlays
def test_workers_are_probed_by_the_command_for_their_queues(overlay: str) -> None:
    pods = list_pods(overlay)
    for name in PROCESSES.keys() - {*SERVICES}:
        (container,) = pods[name]["containers"]
        queues = PROCESSES[name][3:]
        for kind in ("startupProbe", "livenessProbe"):
            probe = container[kind]
            assert probe["exec"]["command"] == ["python", "-m", "ops", "probe", *queues]
            # A platform's default of one second is too short for a busy machine.
            assert probe["timeoutSeconds"] >= 10
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 300
        assert "readinessProbe" not in container


@overlays
def test_prometheus_finds_the_metrics_of_every_pod(overlay: str) -> None:
    (given,) = read(overlay, "ConfigMap").values()
    settings = load_settings({**given["data"], **SECRETS})
    for name, one in read(overlay, "Deployment").items():
        expected = settings.ops_port if name == "api" else settings.metrics_port
        template = one["spec"]["template"]
        ports = {
            port["name"]: port["containerPort"]
            for port in template["spec"]["containers"][0]["ports"]
        }
        assert ports["ops"] == expected, name
        annotations = template["metadata"]["annotations"]
        assert annotations["prometheus.io/scrape"] == "true"
        assert annotations["prometheus.io/port"] == str(expected)
    rules = read(overlay, "NetworkPolicy")["metrics"]["spec"]
    assert rules["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "store"}}
    assert rules["ingress"][0]["ports"] == [{"port": "ops"}]


@overlays
def test_selectors_find_the_pods_of_one_process(overlay: str) -> None:
    deployments = read(overlay, "Deployment")
    labels = {
        name: one["spec"]["template"]["metadata"]["labels"] for name, one in deployments.items()
    }

    def select(selector: Mapping[str, str]) -> set[str]:
        return {name for name, given in labels.items() if selector.items() <= given.items()}

    for name, one in deployments.items():
        assert select(one["spec"]["selector"]["matchLabels"]) == {name}
    for name, one in read(overlay, "Service").items():
        assert select(one["spec"]["selector"]) == {name}
    budgets = read(overlay, "PodDisruptionBudget")
    assert budgets.keys() == {*SERVICES}
    for name, one in budgets.items():
        assert select(one["spec"]["selector"]["matchLabels"]) == {name}


@overlays
def test_rollout_has_three_parts_in_the_order_of_an_upgrade(overlay: str) -> None:
    found: list[Manifest] = [*yaml.safe_load_all(build(overlay))]
    parts = {(one["kind"], one["metadata"]["name"]): one for one in found}
    rollout = {key: one["metadata"]["labels"]["rollout"] for key, one in parts.items()}
    assert {*rollout.values()} == {"before", "workers", "services"}
    assert rollout["Job", "migrate"] == "before"
    for name in PROCESSES:
        expected = "services" if name in SERVICES else "workers"
        assert rollout["Deployment", name] == expected
    for (kind, _), part in rollout.items():
        if kind in ("ConfigMap", "ServiceAccount", "Namespace", "NetworkPolicy"):
            assert part == "before", kind


@overlays
def test_one_clock_runs_at_a_time(overlay: str) -> None:
    clock = read(overlay, "Deployment")["clock"]["spec"]
    assert clock["replicas"] == 1
    assert clock["strategy"] == {"type": "Recreate"}


def test_autoscalers_watch_steps_of_their_own_queues() -> None:
    scalers = read("production", "HorizontalPodAutoscaler")
    deployments = read("production", "Deployment")
    assert scalers.keys() == {"files", "copies", "large", "index", "api"}
    for name, scaler in scalers.items():
        assert scaler["spec"]["scaleTargetRef"]["name"] == name
        # Applying the manifests again must not undo what an autoscaler did.
        assert "replicas" not in deployments[name]["spec"]
    for name in scalers.keys() - {"api"}:
        spec = scalers[name]["spec"]
        (metric,) = spec["metrics"]
        (rule,) = metric["external"]["metric"]["selector"]["matchExpressions"]
        assert metric["external"]["metric"]["name"] == "store_job_oldest_seconds"
        queues = PROCESSES[name][3:]
        steps = {step for queue in queues for step in find_queue_steps(queue)}
        assert rule["key"] == "step"
        assert {*rule["values"]} <= steps


@overlays
def test_workers_of_few_threads_have_fewer_connections(overlay: str) -> None:
    bounded = {name for name, pod in list_pods(overlay).items() if pod["containers"][0].get("env")}
    assert bounded == PROCESSES.keys() - {*SERVICES, "deliver"}


def test_trial_is_not_scaled() -> None:
    assert read("trial", "HorizontalPodAutoscaler") == {}
    replicas = {
        name: one["spec"].get("replicas", 1) for name, one in read("trial", "Deployment").items()
    }
    assert {*replicas.values()} == {1}


def test_adapter_serves_the_metric_of_the_autoscalers() -> None:
    rules = yaml.safe_load((FOLDER / "prometheus-adapter.yml").read_text())["externalRules"]
    (rule,) = rules
    assert rule["name"] == {"as": "store_job_oldest_seconds"}
    # The adapter serves a metric while its series is there: a store without a waiting job has none
    # of ages.
    assert rule["seriesQuery"] == "store_build_info"


def test_subscribers_have_no_way_to_private_addresses() -> None:
    rules = read("production", "NetworkPolicy")["outgoing"]["spec"]["egress"]
    blocks = [peer["ipBlock"] for rule in rules for peer in rule.get("to", ()) if "ipBlock" in peer]
    (everywhere,) = (block for block in blocks if block["cidr"] == "0.0.0.0/0")
    private = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16"}
    assert {*everywhere["except"]} >= {*private, "100.64.0.0/10"}
    unbounded = [rule["ports"] for rule in rules if "to" not in rule]
    assert unbounded == [[{"port": 5432}, {"port": 6379}]]
