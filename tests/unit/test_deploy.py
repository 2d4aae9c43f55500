"""The files in deploy/: commands, settings, paths, rights and metrics are those of the code."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from perago.observability.metrics import WorkerMetrics
from perago.operations import rights
from perago.settings import Settings
from perago.worker.supervisor import LAST_SECONDS
from support.documented_commands import parse

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRICS_PAGE = ROOT / "docs" / "metrics.md"
# The variables of the embedded servers, of which a deployment uses the folder for fetched jars.
BESIDE_SETTINGS = {"PERAGO_CACHE"}
GRACE = "PERAGO_SHUTDOWN_GRACE_SECONDS"


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def check_settings(environment: dict[str, str]) -> None:
    """Every variable is one of a worker, with a value that it accepts."""
    known = {str(field.validation_alias): name for name, field in Settings.model_fields.items()}
    unknown = environment.keys() - known.keys() - BESIDE_SETTINGS
    assert not unknown
    values = {known[key]: value for key, value in environment.items() if key in known and value}
    Settings(**values)


def check_grace(environment: dict[str, str], seconds: float) -> None:
    """A worker must be able to wait for its attempts and for the last publication."""
    assert seconds >= float(environment[GRACE]) + LAST_SECONDS


# systemd


class Unit(configparser.RawConfigParser):
    """A unit file; a key that is given several times keeps all values."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",))
        self.environment: dict[str, str] = {}
        for key, value in re.findall(r"^Environment=(\w+)=(.*)$", text(name), re.MULTILINE):
            self.environment[key] = value
        self.read_string(text(name))

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def test_the_unit_of_a_worker_starts_it_and_gives_it_time_to_drain() -> None:
    unit = Unit("systemd/perago@.service")
    service = unit["Service"]
    program, *words = service["ExecStart"].replace("%i", "pipeline").split()
    assert Path(program).name == "perago"
    assert words[0] == "start"
    assert parse(words)["targets"] == ["pipeline"]
    check_settings(unit.environment)
    check_grace(unit.environment, float(service["TimeoutStopSec"]))
    # A signal to every process would end the programs of bodies that the drain waits for.
    assert service["KillMode"] == "mixed"
    assert service["OOMPolicy"] == "continue"
    assert service["RestartPreventExitStatus"] == "2"


def test_the_units_keep_what_workers_write_below_their_state_directory() -> None:
    unit = Unit("systemd/perago@.service")
    assert unit["Service"]["ProtectSystem"] == "strict"
    state = "/var/lib/" + unit["Service"]["StateDirectory"]
    folders = [value for value in unit.environment.values() if value.startswith("/")]
    assert len(folders) == 3
    assert all(folder.startswith(f"{state}/") for folder in folders)


def test_the_unit_of_the_garbage_collection_runs_it_once_and_has_a_timer() -> None:
    unit = Unit("systemd/perago-gc.service")
    words = unit["Service"]["ExecStart"].split()[1:]
    assert words[0] == "gc"
    assert parse(words)["yes"] is True
    assert unit["Service"]["Type"] == "oneshot"
    assert Unit("systemd/perago-gc.timer")["Timer"]["OnCalendar"] == "daily"


def test_the_example_of_the_environment_has_settings_only_and_no_secret() -> None:
    lines = text("systemd/worker.env.example").splitlines()
    pairs = [
        line.removeprefix("# ").partition("=")
        for line in lines
        if re.search(r"^[# ]*[A-Z_]+=", line)
    ]
    environment = {key: value for key, _, value in pairs}
    assert len(environment) == 7
    check_settings(environment)
    assert not [
        key for key, value in environment.items() if value and ("SECRET" in key or "KEY" in key)
    ]


# The container image


def instructions() -> list[tuple[str, str]]:
    lines = re.sub(r"\\\n\s*", " ", text("container/Dockerfile")).splitlines()
    kept = [line for line in lines if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in kept]


def image_environment() -> dict[str, str]:
    (values,) = [rest for name, rest in instructions() if name == "ENV"]
    return dict(re.findall(r"(\w+)=(\S+)", values))


def test_the_image_runs_a_worker_that_gets_signals_itself() -> None:
    found = dict(instructions())
    assert json.loads(found["ENTRYPOINT"]) == ["perago"]
    words = json.loads(found["CMD"])
    assert words[0] == "start"
    assert parse(words)["executors"] == 2
    assert found["STOPSIGNAL"] == "SIGTERM"
    assert found["USER"] not in {"root", "0"}
    check_settings(image_environment())


def test_the_image_keeps_what_workers_write_in_its_volume_and_opens_the_port_of_the_metrics() -> (
    None
):
    found, environment = dict(instructions()), image_environment()
    (volume,) = json.loads(found["VOLUME"])
    for key in ("PERAGO_WORKSPACE_ROOT", "PERAGO_OBJECT_CACHE", "PERAGO_CACHE"):
        assert environment[key].startswith(f"{volume}/")
    assert environment["PERAGO_METRICS_ADDRESS"].endswith(f":{found['EXPOSE']}")


def test_the_time_that_a_stopped_container_gets_fits_the_drain() -> None:
    for file in (DEPLOY / "container" / "Dockerfile", ROOT / "docs" / "how-to" / "deploy.md"):
        (seconds,) = set(re.findall(r"--stop-timeout (\d+)", file.read_text(encoding="utf-8")))
        check_grace(image_environment(), float(seconds))


# Kubernetes


def manifests(name: str) -> dict[str, Any]:
    return {item["kind"]: item for item in yaml.safe_load_all(text(f"kubernetes/{name}"))}


def test_the_deployment_runs_a_worker_and_its_grace_fits_the_drain() -> None:
    found = manifests("worker.yaml")
    settings = found["ConfigMap"]["data"]
    check_settings(settings)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    # No "command": the entry point of the image is perago itself, as its first process.
    assert "command" not in container
    assert container["args"][0] == "start"
    assert parse(container["args"])["targets"] == ["pipeline"]
    check_grace(settings, pod["terminationGracePeriodSeconds"])
    assert "preStop" not in str(container)


def test_the_probes_of_the_deployment_ask_paths_that_a_worker_serves() -> None:
    (container,) = manifests("worker.yaml")["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    address = image_environment()["PERAGO_METRICS_ADDRESS"]
    assert address == f"0.0.0.0:{ports['metrics']}"
    probes = {name: container[name]["httpGet"] for name in container if name.endswith("Probe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert {probe["port"] for probe in probes.values()} == {"metrics"}
    # Before the paths are served, the folder may be swept for five minutes.
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 300 + 30


def test_what_the_container_writes_to_is_a_volume_and_secrets_come_from_a_secret() -> None:
    found = manifests("worker.yaml")
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounted = {item["mountPath"] for item in container["volumeMounts"]}
    (volume,) = json.loads(dict(instructions())["VOLUME"])
    assert mounted == {volume, "/tmp"}
    assert {"secretRef": {"name": "perago-credentials"}} in container["envFrom"]
    assert not [key for key in found["ConfigMap"]["data"] if "KEY" in key or "SECRET" in key]
    uid = dict(instructions())["USER"]
    assert str(pod["securityContext"]["runAsUser"]) == uid


def test_the_job_of_the_garbage_collection_is_a_command() -> None:
    job = manifests("gc.yaml")["CronJob"]["spec"]
    (container,) = job["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "gc"
    assert parse(container["args"])["yes"] is True
    assert job["concurrencyPolicy"] == "Forbid"


# Rights


def test_the_policy_of_a_worker_has_every_right_that_the_doctor_tries() -> None:
    policy = json.loads(text("lakefs/worker-policy.json"))
    allowed = {
        action
        for statement in policy["statement"]
        if statement["effect"] == "allow"
        for action in statement["action"]
    }
    source = Path(rights.__file__).read_text(encoding="utf-8")
    tried = set(re.findall(r"\b(?:fs|ci):[A-Z]\w+", source))
    assert len(tried) == 10
    assert tried <= allowed
    # It may manage neither users nor repositories.
    assert not [
        it for it in allowed if it.startswith("auth:") or it.endswith(("CreateRepository", "*"))
    ]
    denied = [it for it in policy["statement"] if it["effect"] == "deny"]
    assert [it["resource"].partition("object/")[2] for it in denied] == ["_lakefs_actions/*"]


# Alerts and dashboard


def metric_labels() -> dict[str, set[str]]:
    """The names that a query can use, each with its labels."""
    table = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.*?) \|", METRICS_PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    found: dict[str, set[str]] = {}
    for name, kind, labels in table:
        own = set(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            found[f"{name}_bucket"] = own | {"le"}
            found[f"{name}_sum"] = found[f"{name}_count"] = own
        else:
            found[name] = own
    return found


LABELS = metric_labels()


def alerts() -> dict[str, str]:
    (group,) = yaml.safe_load(text("prometheus/perago-alerts.yaml"))["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert {"summary", "description"} <= rule["annotations"].keys()
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def panels() -> dict[str, str]:
    board = json.loads(text("grafana/perago-workers.json"))
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
    return found


QUERIES = {**alerts(), **panels()}


def problems_of(query: str) -> list[str]:
    """What a query names that no worker has: metrics, labels, values of labels."""
    found = []
    used: set[str] = set()
    for name, selector in re.findall(r"\b(perago_\w+)(?:\{(.*?)\})?", query):
        if name not in LABELS:
            found.append(name)
            continue
        used |= LABELS[name]
        for label, values in re.findall(r'(\w+)=~?"(.*?)"', selector):
            if label not in LABELS[name]:
                found.append(f"{name}{{{label}}}")
            elif "$" not in values and not known_values(values):
                found.append(f"{name}{{{label}={values}}}")
    for group in re.findall(r"\bby \((.*?)\)", query):
        found += [label for label in re.split(r", *", group) if label not in used | {"instance"}]
    return found


def known_values(values: str) -> bool:
    page = METRICS_PAGE.read_text(encoding="utf-8")
    return all(re.search(rf"\b{value}\b", page) for value in values.split("|"))


def test_the_names_of_metrics_are_those_of_a_worker() -> None:
    registered = {metric.name for metric in WorkerMetrics(["clean"]).registry.collect()}
    assert {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in LABELS} == registered


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_a_query_uses_metrics_and_labels_that_workers_have(query: str) -> None:
    assert "perago_" in query
    assert problems_of(query) == []
    assert query.count("(") == query.count(")")


@pytest.mark.parametrize(
    "query",
    [
        "perago_nothing_total > 0",
        'perago_attempts_total{how="merged"}',
        'perago_attempts_total{outcome="vanished"}',
        "sum by (phase) (perago_attempts_total)",
        "perago_publish_seconds",
    ],
)
def test_a_wrong_query_is_found(query: str) -> None:
    assert problems_of(query) != []


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for query in panels().values() for name in re.findall(r"perago_\w+", query)}
    missing = {re.sub(r"_(bucket|sum|count)$", "", name) for name in LABELS} - {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in shown
    }
    assert missing == {"perago_object_cache_hit_bytes_total"}
