"""deploy/kubernetes and its page: the API takes the manifests, and the programs what is in them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from binlogctl import ready
from binlogctl.cli import command_line
from binlogctl.commands.config import examine
from tests.deploy.containers import PORTS, ROOT, STAGES
from tests.waiting import PATIENCE_S, until, until_served
from tidb_binlog.config import declaring, loading
from tidb_binlog.net.port import own_address
from tidb_binlog.version import VERSION

MANIFESTS = ROOT / "deploy" / "kubernetes"
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
RELEASES = ("1.30", "1.32", "1.34", "1.37")
PROGRAMS = pytest.mark.parametrize("program", ["pump", "drainer"])


def objects(directory: Path = MANIFESTS) -> list[dict[str, Any]]:
    return [one for file in sorted(directory.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text())]


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in objects() if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


CONFIG = named("ConfigMap", "binlog")["data"]


def pod(program: str) -> dict[str, Any]:
    spec: dict[str, Any] = named("StatefulSet", f"binlog-{program}")["spec"]["template"]["spec"]
    return spec


def container(program: str) -> dict[str, Any]:
    (only,) = pod(program)["containers"]
    assert isinstance(only, dict)
    return only


def environment(program: str) -> dict[str, str]:
    """As the kubelet makes it of the first pod: a value may name variables before it."""
    fields = {
        "metadata.name": f"binlog-{program}-0",
        "metadata.namespace": "tidb-binlog",
        "status.podIP": "10.1.2.3",
    }
    made = dict(STAGES[program].environment)
    for entry in container(program)["env"]:
        if "value" in entry:
            made[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: made[match[1]], entry["value"])
        elif "fieldRef" in entry["valueFrom"]:
            made[entry["name"]] = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            reference = entry["valueFrom"]["configMapKeyRef"]
            assert reference["name"] == "binlog"
            made[entry["name"]] = CONFIG[reference["key"]]
    return made


@pytest.mark.parametrize("release", RELEASES)
def test_the_api_takes_them(release: str) -> None:
    import kubernetes_validate  # reads a grammar for three seconds, in each process that collects this file

    kinds = set()
    for one in objects():
        kubernetes_validate.validate(one, release, strict=True)
        kinds.add(one["kind"])
    assert kinds == {"ConfigMap", "PodDisruptionBudget", "Service", "StatefulSet"}
    wrong = named("PodDisruptionBudget", "binlog-pump")
    wrong["spec"]["maxUnavailabel"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, release, strict=True)


@PROGRAMS
def test_the_programs_take_their_files(program: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    file = tmp_path / f"{program}.toml"
    text = CONFIG[f"{program}.toml"].replace("/run/secrets/tidb-binlog", str(tmp_path))
    file.write_text(text)
    kind, prefix = ready.NODES[program]
    made = environment(program)
    known = {declaring.variable(prefix, one.flag) for one in declaring.options(kind).values() if one.flag}
    assert {name for name in made if name.startswith(f"{prefix}_")} <= known
    assert examine(str(file), program, made).problems == ()
    settings: Any = loading.load(kind, ["--config", str(file)], made, program=program, env_prefix=prefix)
    assert settings.advertised == f"binlog-{program}-0.binlog-{program}.tidb-binlog.svc:{PORTS[program]}"
    assert settings.listen == f"0.0.0.0:{PORTS[program]}"
    node_id = settings.default_node_id if program == "pump" else settings.name
    assert node_id == f"{socket.gethostname()}:{PORTS[program]}", "a pod's host name is its own"
    assert settings.pd_urls == CONFIG["pd-urls"] == made["BINLOGCTL_PD_URLS"]
    assert settings.admin_from == ("10.1.2.3",)
    assert settings.data_dir == f"{STAGES[program].of('VOLUME')[0]}/{program}"


@PROGRAMS
def test_a_pod_has_what_its_image_needs_and_no_more(program: str) -> None:
    spec, only = pod(program), container(program)
    assert only["image"] == f"tidb-binlog-{program}:{VERSION}"
    assert f"{program} --config /etc/tidb-binlog/{program}.toml" in " ".join(only["command"])
    (user,) = STAGES[program].of("USER")
    security = spec["securityContext"]
    assert security["runAsNonRoot"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
    assert str(security["fsGroup"]) == user.partition(":")[2]
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    places = {mount["name"]: mount["mountPath"] for mount in only["volumeMounts"]}
    (claim,) = named("StatefulSet", f"binlog-{program}")["spec"]["volumeClaimTemplates"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert set(places) == {claim["metadata"]["name"], *volumes}
    assert places["data"] == STAGES[program].of("VOLUME")[0]
    assert places["config"] == "/etc/tidb-binlog"
    assert volumes["config"]["configMap"]["name"] == "binlog"
    if program == "drainer":
        assert f"{places['downstream']}/password" in CONFIG["drainer.toml"]
        name = volumes["downstream"]["secret"]["secretName"]
        assert f"kubectl create secret generic {name} --from-file=password\n" in PAGE
    unit = (ROOT / "deploy" / "systemd" / f"{program}.service").read_text()
    assert f"\nTimeoutStopSec={spec['terminationGracePeriodSeconds']}\n" in unit


@PROGRAMS
def test_services_budgets_and_monitors_mean_the_pods(program: str) -> None:
    stateful = named("StatefulSet", f"binlog-{program}")["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    service = named("Service", stateful["serviceName"])
    assert stateful["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    (port,) = service["spec"]["ports"]
    assert container(program)["ports"] == [{"name": port["name"], "containerPort": PORTS[program]}]
    assert port["port"] == PORTS[program]
    budget = named("PodDisruptionBudget", "binlog-pump")["spec"]
    assert (budget["selector"]["matchLabels"].items() <= labels.items()) == (program == "pump")
    (monitor,) = objects(MANIFESTS / "monitoring")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [(one["port"], one["path"]) for one in monitor["spec"]["endpoints"]] == [
        (port["name"], "/metrics")
    ]
    assert re.search(f".*{program}.*", service["metadata"]["name"]), "the job that the rules know"


# The container's command, with a real Pump ---------------------------------------------------------


@pytest.fixture
def in_a_pod(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Callable[[str], tuple[Any, str]]]:
    """Starts the Pump's container as the manifest says, but for its paths and its address."""
    started: list[subprocess.Popen[bytes]] = []
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pump").write_text(f'#!/bin/sh\nexec {sys.executable} -m pump "$@"\n')
    (programs / "pump").chmod(0o755)
    (tmp_path / "pump.toml").write_text(CONFIG["pump.toml"].replace('"10 GiB"', '"1 MiB"'))

    def start(etcd: str) -> tuple[Any, str]:
        own = own_address()  # as a pod has one that is not loopback
        address = f"{own}:{free_port()}"
        shell, flag, script = container("pump")["command"]
        changed = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "common", ROOT / "deploy"))),
            "PUMP_ADDR": f"0.0.0.0:{address.rpartition(':')[2]}",
            "PUMP_ADMIN_FROM": own,
            "PUMP_ADVERTISE_ADDR": address,
            "PUMP_DATA_DIR": str(tmp_path / "data"),
            "PUMP_PD_URLS": etcd,
        }
        with open(tmp_path / "log", "ab") as log:
            process = subprocess.Popen(
                [shell, flag, script.replace("/etc/tidb-binlog", str(tmp_path))],
                env={**os.environ, **environment("pump"), **changed},
                stdout=log,
                stderr=log,
                cwd=tmp_path,
            )
        started.append(process)
        return process, address

    yield start
    for process in started:
        process.terminate()
        process.wait(PATIENCE_S)


def log_of(directory: Path) -> str:
    return (directory / "log").read_text(errors="replace")


def asked(address: str, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def paths(name: str) -> str:
    found: str = container("pump")[name]["httpGet"]["path"]
    assert container("drainer")[name]["httpGet"]["path"] == found
    return found


@pytest.mark.integration
def test_probes_ask_routes_that_answer_as_the_page_says(
    in_a_pod: Callable[[str], tuple[Any, str]], free_port: Callable[[], int], tmp_path: Path
) -> None:
    """Without etcd the Pump waits: it is alive, and not ready."""
    process, address = in_a_pod(f"http://127.0.0.1:{free_port()}")
    until_served(f"http://{address}{paths('livenessProbe')}", process, lambda: log_of(tmp_path))
    assert paths("startupProbe") == paths("livenessProbe")
    assert asked(address, paths("readinessProbe")) == 503


@pytest.mark.integration
async def test_a_pump_that_is_told_to_stop_is_paused(
    in_a_pod: Callable[[str], tuple[Any, str]], etcd_clean: str, tmp_path: Path
) -> None:
    process, address = in_a_pod(etcd_clean)
    until_served(f"http://{address}{paths('readinessProbe')}", process, lambda: log_of(tmp_path))
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0, log_of(tmp_path)
    assert "closed: scale in now" not in log_of(tmp_path)


@pytest.mark.integration
async def test_a_pump_that_was_closed_stays_down_until_the_pod_ends(
    in_a_pod: Callable[[str], tuple[Any, str]], etcd_clean: str, tmp_path: Path
) -> None:
    process, address = in_a_pod(etcd_clean)
    until_served(f"http://{address}{paths('readinessProbe')}", process, lambda: log_of(tmp_path))
    node_id = f"{socket.gethostname()}:{address.rpartition(':')[2]}"  # in a pod its name, and 8250
    call = [sys.executable, "-m", "binlogctl", "close", "-force", "-pd-urls", etcd_clean, node_id]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "common", ROOT / "deploy"))),
    }
    done = subprocess.run(call, env=environ, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    await until(lambda: "closed: scale in now" in log_of(tmp_path), lambda: log_of(tmp_path))
    assert process.poll() is None, "the container would be started again"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


# The page ------------------------------------------------------------------------------------------


def test_commands_of_the_page() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) > 10
    stateful = {f"statefulset/{one['metadata']['name']}" for one in objects() if one["kind"] == "StatefulSet"}
    replicas = named("StatefulSet", "binlog-pump")["spec"]["replicas"]
    for program, verb, *words in commands:
        assert program == "kubectl"
        if verb == "exec":
            of, dashes, called, *arguments = words
            assert (dashes, called) == ("--", "binlogctl")
            assert re.fullmatch(f"binlog-pump-[0-{replicas - 1}]", of)
            assert isinstance(command_line.parse(arguments, {}), command_line.Call)
            if arguments[0] == "close":
                assert arguments[1] == f"{of}:{PORTS['pump']}"
        elif verb == "apply":
            assert objects(ROOT / words[1])
        elif verb in ("rollout", "scale", "delete"):
            assert {word for word in words if "/" in word} <= stateful
        else:
            assert verb in ("create", "config")
    files = set(re.findall(r"\(\.\./(deploy/kubernetes/[\w/.]+)\)", PAGE))
    assert files == {path.relative_to(ROOT).as_posix() for path in MANIFESTS.rglob("*.yaml")}
    assert f"python -m {ready.__name__} pump --config /etc/tidb-binlog/pump.toml" in PAGE
