"""The files of deploy/ are what their readers take: linters, parsers, and the broker's settings."""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from mqcore.broker.settings import load as broker_settings
from mqcore.namesrv import settings as namesrv_settings
from tests.support.ci import unavailable

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "mqcore"
KUBERNETES = ("1.25.0", "1.37.0")
ALL_METRICS = {"metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True},
                           "dashboard": {"enabled": True}}}
VALUES: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "all": ALL_METRICS | {
        "imagePullSecrets": [{"name": "registry"}],
        "broker": {
            "replicas": 3, "storage": {"size": "1Ti", "storageClassName": "fast"},
            "settings": {"store": {"flush": "sync", "segment_size_bytes": 67108864,
                                   "warm_segments": True},
                         "processes": {"serving_count": 2},
                         "broker": {"cluster": "blue & green"},
                         "limits": {"exempt_addresses": ["10.0.0.0/8", "::1"]}},
            "nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}}, "podAnnotations": {"a": "b"},
            "extraEnv": [{"name": "MQCORE_LOG_FORMAT", "value": "json"}]},
        "namesrv": {"replicas": 2, "addresses": ["names.example:9876"]}},
    "name servers elsewhere": {"namesrv": {"enabled": False, "addresses": ["a:1", "b:2"]}},
}


def tool(module: str) -> ModuleType:
    """A module of the extra `deploy`. Skips the test where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        unavailable(f"{module} is not installed: make tools EXTRAS=test,lint,deploy")


def program(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        unavailable(f"{name} is not installed")
    return found


def said(*command: str | Path) -> str:
    """The words of a program about a file that it takes."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(values: dict[str, Any]) -> dict[str, str]:
    chart = tool("helm_python.chart").Chart.load(CHART)
    files: dict[str, str] = chart.render(values, name="shop", namespace="queues")
    return {name.removeprefix("mqcore/templates/"): text for name, text in files.items()}


def objects(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, text in rendered(values).items():
        if name.endswith(".yaml"):
            yield from filter(None, yaml.safe_load_all(text))


def of_kind(values: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects(values) if one["kind"] == kind}


def environment(container: dict[str, Any], pod: str) -> dict[str, str]:
    """Of a container, as Kubernetes expands it."""
    found: dict[str, str] = {}
    for one in container["env"]:
        value = {"metadata.name": pod, "status.podIP": "10.1.2.3"}[
            one["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in one else one["value"]
        for name, earlier in found.items():
            value = value.replace(f"$({name})", earlier)
        found[one["name"]] = value
    return found


# -- image and compose -----------------------------------------------------------------------------


def test_hadolint_takes_the_dockerfile() -> None:
    assert said(program("hadolint"), DEPLOY / "Dockerfile") == ""


def test_a_mistake_in_a_dockerfile_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM python\nRUN cd /tmp\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="DL3006"):
        said(program("hadolint"), file)


def test_the_compose_file_is_one() -> None:
    merged = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    parser = tool("compose_spec").PyCompose
    parsed = parser.from_json(json.dumps(merged))
    parsed.validate()
    assert sorted(parsed.service_names()) == ["broker", "grafana", "namesrv", "prometheus"]
    with pytest.raises(ValueError, match="readonly"):
        parser.from_json(json.dumps(merged).replace("read_only", "readonly"))


def test_what_compose_mounts_is_there_and_read_by_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    mounted = [DEPLOY / volume.split(":")[0] for service in services.values()
               for volume in service["volumes"] if volume.startswith(".")]
    assert [path for path in mounted if not path.exists()] == []
    monkeypatch.setenv("MQCORE_BROKER_ADVERTISED_IP", "10.1.2.3")       # of the name, there
    for name, value in services["broker"]["environment"].items():
        monkeypatch.setenv(name, value.partition(":-")[2].rstrip("}") or value)
    settings = broker_settings.load(DEPLOY / "compose" / "broker.toml", None, [])
    assert (settings.advertised_addr, settings.broker.namesrv_addrs) == (
        "broker:10911", ("namesrv:9876",))
    names, ignored = namesrv_settings.load(DEPLOY / "compose" / "namesrv.toml")
    assert (names.http_listen, ignored) == ("0.0.0.0:10980", [])


def test_prometheus_takes_its_file_and_the_rules(tmp_path: Path) -> None:
    promtool = program("promtool")
    for path in (DEPLOY / "compose" / "prometheus.yml",
                 ROOT / "docs" / "monitoring" / "mqcore.rules.yml"):
        shutil.copy(path, tmp_path)
    assert "SUCCESS" in said(promtool, "check", "config", tmp_path / "prometheus.yml")


def test_grafana_finds_the_board_and_its_source() -> None:
    grafana = DEPLOY / "compose" / "grafana" / "provisioning"
    (source,) = yaml.safe_load(
        (grafana / "datasources" / "prometheus.yml").read_text(encoding="utf-8"))["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    (provider,) = yaml.safe_load(
        (grafana / "dashboards" / "mqcore.yml").read_text(encoding="utf-8"))["providers"]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    boards = [volume.split(":")[1] for volume in services["grafana"]["volumes"]
              if volume.startswith("../docs/monitoring/mqcore.json:")]
    assert [str(Path(board).parent) for board in boards] == [provider["options"]["path"]]


# -- chart -----------------------------------------------------------------------------------------


def test_helm_takes_the_chart() -> None:
    report = tool("helm_python.chart").lint(CHART, ALL_METRICS, strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] >= 2] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_takes_what_the_chart_makes(values: dict[str, Any], version: str) -> None:
    checker = tool("kubernetes_validate")
    seen = 0
    for one in objects(values):
        if one["apiVersion"].startswith("monitoring.coreos.com/"):      # of an operator
            continue
        checker.validate(one, version, strict=True)
        seen += 1
    assert seen >= 4


def test_a_mistake_in_an_object_is_seen() -> None:
    checker = tool("kubernetes_validate")
    (broker, *_) = of_kind({}, "StatefulSet").values()
    broker["spec"]["replica"] = broker["spec"].pop("replicas")
    with pytest.raises(checker.ValidationError):
        checker.validate(broker, KUBERNETES[-1], strict=True)


def test_the_settings_of_the_chart_are_those_of_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = VALUES["all"]
    for pod in ("shop-mqcore-0", "shop-mqcore-2"):
        broker = of_kind(values, "StatefulSet")["shop-mqcore"]["spec"]["template"]["spec"]
        data = of_kind(values, "ConfigMap")["shop-mqcore"]["data"]
        for name, text in data.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        for name, value in environment(broker["containers"][0], pod).items():
            monkeypatch.setenv(name, value)
        found = broker_settings.load(tmp_path / "broker.toml", None, [])
        assert found.broker.name == pod
        assert found.broker.advertised_ip == "10.1.2.3"
        assert found.advertised_addr == f"{pod}.shop-mqcore.queues.svc:10911"
        assert found.broker.namesrv_addrs == (
            "names.example:9876", "shop-mqcore-namesrv-0.shop-mqcore-namesrv.queues.svc:9876",
            "shop-mqcore-namesrv-1.shop-mqcore-namesrv.queues.svc:9876")
        assert (found.store.segment_size_bytes, found.store.flush, found.broker.cluster) == (
            67108864, "sync", "blue & green")
        assert list(found.limits.exempt_addresses) == ["10.0.0.0/8", "::1"]
        assert found.log.format == "json"
        names, ignored = namesrv_settings.load(tmp_path / "namesrv.toml")
        assert (names.listen_host, ignored) == ("0.0.0.0", [])
        assert broker["terminationGracePeriodSeconds"] > found.processes.stop_timeout_ms / 1000


def test_probes_and_ports_of_the_chart_are_those_of_the_image() -> None:
    exposed = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").partition("EXPOSE ")[2]
    for name, kind in (("shop-mqcore", "broker"), ("shop-mqcore-namesrv", "namesrv")):
        pod = of_kind({}, "StatefulSet")[name]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        assert {str(port) for port in ports.values()} <= set(exposed.splitlines()[0].split())
        assert ports["http"] == 10980
        for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
            assert container[probe]["httpGet"] == {"path": path, "port": "http"}
        service = of_kind({}, "Service")[name]["spec"]
        assert {one["port"] for one in service["ports"]} == set(ports.values())
        assert service["selector"].items() <= of_kind({}, "StatefulSet")[name]["spec"][
            "template"]["metadata"]["labels"].items()
        assert container["args"][0] == kind


def test_rules_and_board_of_the_chart_are_the_shipped_ones() -> None:
    (rules,) = of_kind(ALL_METRICS, "PrometheusRule").values()
    monitoring = ROOT / "docs" / "monitoring"
    assert rules["spec"] == yaml.safe_load(
        (monitoring / "mqcore.rules.yml").read_text(encoding="utf-8"))
    board = of_kind(ALL_METRICS, "ConfigMap")["shop-mqcore-dashboard"]["data"]["mqcore.json"]
    assert json.loads(board) == json.loads((monitoring / "mqcore.json").read_text("utf-8"))
    (monitor,) = of_kind(ALL_METRICS, "ServiceMonitor").values()
    services = of_kind(ALL_METRICS, "Service").values()
    job = monitor["spec"]["jobLabel"]
    assert {one["metadata"]["labels"][job] for one in services} == {"mqcore"}


@pytest.mark.parametrize(("values", "said"), [
    ({"broker": {"replicas": 0}}, "replicas"),
    ({"broker": {"replica": 2}}, "replica"),
    ({"broker": {"settings": {"broker": {"name": "mine"}}}}, "broker"),
    ({"namesrv": {"addresses": ["names"]}}, "addresses"),
    ({"namesrv": {"enabled": False}}, "expected one HOST:PORT at least"),
    ({"broker": {"storage": {"size": "many"}}}, "size"),
])
def test_values_that_cannot_be_used_are_refused(values: dict[str, Any], said: str) -> None:
    chart = tool("helm_python.chart").Chart.load(CHART)
    with pytest.raises(Exception, match=said):
        chart.render(values)
