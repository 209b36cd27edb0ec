"""The manifests use existing settings, commands, ports, streams and queues, and restricted pods."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML

from rune.adapters.rabbitmq.topology import Topology
from rune.adapters.redis.encoding import PARTITIONS, KeySpace
from rune.adapters.redis.streams import GROUP
from rune.bootstrap.http import ServerStartError, check_address
from rune.ports.queue import LANES
from rune.server.health import HEALTH
from rune.settings import Settings, load_settings
from tests.acceptance.deploy.command_lines import command_path
from tests.lint.tree import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(FOLDER.rglob("*.yaml"))
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
SETTINGS = {f"RUNE_{field.name.upper()}" for field in msgspec.structs.fields(Settings)}
ROLES = ("api", "worker", "scheduler")


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in YAML(typ="safe", pure=True).load_all(path.read_text(encoding="utf-8")) if each]


ALL = [(path, each) for path in FILES for each in documents(path)]


def kind(wanted: str, name: str = "") -> dict[str, Any]:
    (found,) = [
        each for _, each in ALL if each["kind"] == wanted and (not name or each["metadata"]["name"] == name)
    ]
    return found


def pod(role: str) -> dict[str, Any]:
    owner = kind("Job") if role == "migrate" else kind("Deployment", f"rune-{role}")
    template: dict[str, Any] = owner["spec"]["template"]
    return template


def container(role: str) -> dict[str, Any]:
    (found,) = pod(role)["spec"]["containers"]
    only: dict[str, Any] = found
    return only


def example(role: str) -> dict[str, str]:
    lines = (FOLDER / "example" / f"{role}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def environment(role: str) -> dict[str, str]:
    """The environment of a process of the example."""
    own = {each["name"]: each["value"] for each in container(role).get("env", [])}
    return {**kind("ConfigMap")["data"], **example("owner" if role == "migrate" else role), **own}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_kustomization_lists_every_file(path: Path) -> None:
    for each in documents(path):
        assert {"apiVersion", "kind"} <= each.keys()
    (named,) = documents(path.parent / "kustomization.yaml")
    if path.name != "kustomization.yaml":
        assert path.name in named["resources"]
        return
    listed = [*named["resources"], *named.get("components", [])]
    assert [each for each in listed if not (path.parent / each).exists()] == []
    generated = [*named.get("configMapGenerator", []), *named.get("secretGenerator", [])]
    files = [name for each in generated for name in (*each.get("files", []), *each.get("envs", []))]
    assert [each for each in files if not (path.parent / each).is_file()] == []


def test_base_resource_names_are_unique() -> None:
    base = [each for path, each in ALL if path.parent.name == "base" and "metadata" in each]
    named = [(each["kind"], each["metadata"]["name"]) for each in base]
    assert len(named) == len(set(named))
    assert {("Deployment", f"rune-{role}") for role in ROLES} <= set(named)


@pytest.mark.parametrize("role", [*ROLES, "migrate"])
def test_pod_settings_exist_and_load(role: str, tmp_path: Path) -> None:
    given = environment(role)
    assert given.keys() <= SETTINGS
    settings = load_settings(given, tmp_path)
    assert settings.clustered
    assert settings.queue == settings.state
    assert settings.grace > 0
    assert (settings.api_key != "") == (role == "api")
    assert (settings.secret_key != "") == (role in ("api", "worker"))  # these encrypt and decrypt credentials
    sources = {source for each in container(role)["envFrom"] for source in each}
    assert sources == {"configMapRef", "secretRef"}


def test_example_key_is_refused_until_it_is_replaced() -> None:
    with pytest.raises(ServerStartError, match="RUNE_API_KEY is an example"):
        check_address("0.0.0.0", key=environment("api")["RUNE_API_KEY"], locked=True)


@pytest.mark.parametrize("role", [*ROLES, "migrate"])
def test_each_role_has_own_user_and_tls(role: str) -> None:
    given = example("owner" if role == "migrate" else role)
    assert f"//rune_{'owner' if role == 'migrate' else role}:" in given["RUNE_JOURNAL"]
    assert "sslmode=verify-full" in given["RUNE_JOURNAL"]
    assert given["RUNE_STATE"].startswith(f"rediss://rune-{'owner' if role == 'migrate' else role}:")
    mounts = {each["mountPath"] for each in container(role)["volumeMounts"]}
    (authority,) = re.findall(r"sslrootcert=(\S+)", given["RUNE_JOURNAL"])
    assert str(Path(authority).parent) in mounts


@pytest.mark.parametrize("role", [*ROLES, "migrate"])
def test_pod_commands_exist(role: str) -> None:
    expected = "rune migrate" if role == "migrate" else f"rune serve {role}"
    assert command_path(container(role)["args"]) == expected
    assert container(role)["image"] == "rune-engine"
    assert 'ENTRYPOINT ["rune"]' in DOCKERFILE


@pytest.mark.parametrize("role", ROLES)
def test_probes_use_served_port_and_path(role: str, tmp_path: Path) -> None:
    one = container(role)
    ports = {each["name"]: each["containerPort"] for each in one["ports"]}
    if role == "api":
        served_port = int(one["args"][one["args"].index("--port") + 1])
        assert one["args"][one["args"].index("--host") + 1] == "0.0.0.0"
    else:
        settings = load_settings(environment(role), tmp_path)
        served_port = settings.health_port
        assert settings.health_host == "0.0.0.0"
    for probe, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        request = one[f"{probe}Probe"]["httpGet"]
        assert (request["path"], ports[request["port"]]) == (path, served_port)
        assert request["path"] in HEALTH


@pytest.mark.parametrize("role", ROLES)
def test_termination_grace_exceeds_shutdown_grace(role: str, tmp_path: Path) -> None:
    grace = load_settings(environment(role), tmp_path).grace
    before = container(role).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", "0"])
    assert pod(role)["spec"]["terminationGracePeriodSeconds"] >= grace + float(before[1]) + 10


@pytest.mark.parametrize("role", [*ROLES, "migrate"])
def test_pod_is_restricted(role: str) -> None:
    outer, inner = pod(role)["spec"]["securityContext"], container(role)["securityContext"]
    (user,) = re.findall(r"^USER (\d+):", DOCKERFILE, re.MULTILINE)
    assert (outer["runAsNonRoot"], outer["runAsUser"]) == (True, int(user))
    assert outer["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inner == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod(role)["spec"]["automountServiceAccountToken"] is False
    mounts = {each["mountPath"]: each["name"] for each in container(role)["volumeMounts"]}
    volumes = {each["name"]: each for each in pod(role)["spec"]["volumes"]}
    home = kind("ConfigMap")["data"]["RUNE_HOME"]
    assert all("emptyDir" in volumes[mounts[place]] for place in (home, "/tmp"))
    assert set(mounts.values()) == set(volumes)


@pytest.mark.parametrize("role", [*ROLES, "migrate"])
def test_pod_declares_resources(role: str) -> None:
    resources = container(role)["resources"]
    assert {"cpu", "memory"} <= resources["requests"].keys()
    assert "memory" in resources["limits"]


@pytest.mark.parametrize("role", ROLES)
def test_disruption_budget_leaves_one_pod(role: str) -> None:
    budget, deployed = kind("PodDisruptionBudget", f"rune-{role}")["spec"], kind("Deployment", f"rune-{role}")
    labels = pod(role)["metadata"]["labels"]
    assert budget["maxUnavailable"] < deployed["spec"]["replicas"]
    assert budget["selector"]["matchLabels"] == deployed["spec"]["selector"]["matchLabels"] == labels
    assert deployed["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_only_api_accepts_ingress() -> None:
    service = kind("Service")["spec"]
    assert service["selector"] == pod("api")["metadata"]["labels"]
    assert {each["targetPort"] for each in service["ports"]} == {"http"}
    assert "ingress" not in kind("NetworkPolicy", "rune-closed")["spec"]
    opened = kind("NetworkPolicy", "rune-api")["spec"]
    assert opened["podSelector"]["matchLabels"] == pod("api")["metadata"]["labels"]


def test_egress_of_workers_excludes_private_and_metadata_addresses() -> None:
    spec = kind("NetworkPolicy", "rune-egress-worker")["spec"]
    (rule,) = spec["egress"]
    (peer,) = rule["to"]
    denied = [ip_network(each) for each in peer["ipBlock"]["except"]]
    private = ("10.1.2.3", "127.0.0.1", "169.254.169.254", "172.31.0.1", "192.168.1.1", "100.64.0.1")
    assert [each for each in private if not any(ip_address(each) in network for network in denied)] == []
    assert not any(ip_address("93.184.215.14") in network for network in denied)
    assert spec["podSelector"]["matchLabels"] == pod("worker")["metadata"]["labels"]


def test_egress_to_stores_applies_to_every_pod() -> None:
    spec = kind("NetworkPolicy", "rune-egress-stores")["spec"]
    for role in ROLES:
        assert spec["podSelector"]["matchLabels"].items() <= pod(role)["metadata"]["labels"].items()
    assert spec["policyTypes"] == ["Egress"]
    assert {each["port"] for rule in spec["egress"] for each in rule["ports"]} == {53, 5432, 6379, 5671}


class TestAutoscaling:
    @staticmethod
    def spec(name: str) -> dict[str, Any]:
        found: dict[str, Any] = documents(FOLDER / "autoscale" / name / "worker.yaml")[0]["spec"]
        assert found["scaleTargetRef"]["name"] == "rune-worker"
        return found

    def test_redis_triggers_cover_all_streams(self) -> None:
        spec, config = self.spec("redis"), kind("ConfigMap")["data"]
        keys = KeySpace(config["RUNE_PREFIX"], int(config["RUNE_PARTITIONS"]))
        assert keys.partitions == PARTITIONS
        streams = {each["metadata"]["stream"] for each in spec["triggers"]}
        assert streams == {
            keys.stream(part, "default", lane) for part in range(keys.partitions) for lane in LANES
        }
        assert {each["metadata"]["consumerGroup"] for each in spec["triggers"]} == {GROUP}
        self.check_formula(spec)

    def test_rabbitmq_triggers_cover_all_queues(self) -> None:
        spec = self.spec("rabbitmq")
        assert {each["metadata"]["queueName"] for each in spec["triggers"]} == set(Topology().work) & {
            "workflow.execution.high",
            "workflow.execution",
            "workflow.execution.low",
        }
        self.check_formula(spec)

    def check_formula(self, spec: dict[str, Any]) -> None:
        names = [each["name"] for each in spec["triggers"]]
        formula = spec["advanced"]["scalingModifiers"]["formula"]
        assert [each.strip() for each in formula.split("+")] == names
        refers = {each["authenticationRef"]["name"] for each in spec["triggers"]}
        assert refers == {"rune-watcher"}

    def test_prometheus_trigger_uses_existing_metric(self) -> None:
        (trigger,) = self.spec("prometheus")["triggers"]
        (name,) = re.findall(r"rune_\w+", trigger["metadata"]["query"])
        source = "".join(path.read_text() for path in (ROOT / "src" / "rune" / "telemetry").glob("*.py"))
        assert f'"{name}"' in source

    def test_cpu_autoscaler_has_requests_and_two_replicas(self) -> None:
        spec = self.spec("cpu")
        assert spec["minReplicas"] >= 2
        assert (
            "cpu" in container("worker")["resources"]["requests"]
        )  # the autoscaler measures relative to the request

    @pytest.mark.parametrize("name", ["cpu", "redis", "rabbitmq", "prometheus"])
    def test_scale_down_removes_one_worker_at_a_time(self, name: str) -> None:
        spec = self.spec(name)
        (named,) = documents(FOLDER / "autoscale" / name / "kustomization.yaml")
        (patch,) = named["patches"]
        assert patch["target"] == {"kind": "Deployment", "name": spec["scaleTargetRef"]["name"]}
        assert YAML(typ="safe").load(patch["patch"]) == [{"op": "remove", "path": "/spec/replicas"}]
        advanced = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", spec)
        assert advanced["behavior"]["scaleDown"]["policies"] == [
            {"type": "Pods", "value": 1, "periodSeconds": 60}
        ]
