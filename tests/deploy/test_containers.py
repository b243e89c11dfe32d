"""Dockerfile and compose.yaml, read without Docker: what they name is there, what they set is known."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from binlogctl import ready
from drainer.config.database_options import DatabaseOptions
from drainer.config.password import PASSWORD_VARIABLE
from tests.deploy.containers import COMPOSE, PORTS, PROJECT, ROOT, SERVICES, STAGES, VERSION
from tests.waiting import PATIENCE_S
from tidb_binlog.config import declaring, loading
from tidb_binlog.net.port import split_address
from tidb_binlog.serving.node_config import NodeConfig


def sent_to_docker(path: str) -> bool:
    """As .dockerignore has it: the last line that means a path decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            if any(fnmatch.fnmatch(part, pattern) for part in (path, path.partition("/")[0])):
                sent = line.startswith("!")
    return sent


def is_program(words: list[str]) -> bool:
    if words[:2] == ["python", "-m"]:
        return find_spec(words[2]) is not None
    return words[0] in PROJECT["scripts"]


def test_images_are_of_one_version() -> None:
    named = [stage.image for stage in STAGES.values() if stage.image not in STAGES]
    images = {service["image"] for service in SERVICES.values()}
    own = {service["image"] for service in SERVICES.values() if "build" in service}
    assert all("${VERSION:-trial}" in image for image in own)
    named += sorted(images - own)
    assert len(named) > 5
    for image in named:
        assert VERSION.fullmatch(image.partition(":")[2]), image


def test_what_the_dockerfile_copies_is_there_and_sent() -> None:
    for stage in STAGES.values():
        for rest in stage.of("COPY"):
            *sources, _ = [word for word in rest.split() if not word.startswith("--")]
            if "--from=" not in rest:
                assert all((ROOT / source).exists() for source in sources)
                assert all(source == "." or sent_to_docker(source) for source in sources)
    needed = {PROJECT["readme"], "pyproject.toml", *PROJECT["license-files"]}
    needed |= {"common", "pump", "pumpclient", "drainer", "deploy"}
    assert all(sent_to_docker(name) for name in needed)
    assert not any(sent_to_docker(name) for name in (".env", ".git", ".venv", "build", "tests"))
    (asked,) = set(re.findall(r"\.\[([\w,]+)\]", " ".join(STAGES["wheels"].of("RUN"))))
    assert set(asked.split(",")) <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("program", PORTS)
def test_a_node_s_image(program: str) -> None:
    """It starts what is installed, with a file that is in it and variables that are read, as nobody."""
    stage = STAGES[program]
    command = json.loads(stage.of("CMD")[-1])
    check = json.loads(stage.of("HEALTHCHECK")[-1].split("CMD", 1)[1])
    assert command[0] == program
    assert is_program(command)
    assert is_program(check)
    assert check == ["python", "-m", "binlogctl.ready", program, *command[1:]]
    assert "python -m compileall -q /usr/local/lib/python3*" in stage.of("RUN")  # it writes none as it runs
    assert stage.environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert stage.of("EXPOSE") == [str(PORTS[program])]
    assert stage.of("USER") == ["10001:10001"]
    copied = {
        f"{rest.split()[-1]}{Path(name).name}" for rest in stage.of("COPY") for name in rest.split()[:-1]
    }
    assert command[-1] in copied
    settings = loaded(program, stage.environment)
    assert split_address("addr", settings.listen) == ("0.0.0.0", PORTS[program])
    assert stage.of("VOLUME") == [getattr(settings, "data_dir")]  # noqa: B009
    assert not re.search(r"PASS|PSWD|SECRET|TOKEN", " ".join(stage.environment))


def loaded(program: str, environment: dict[str, str]) -> NodeConfig:
    """The node's settings from its starter file and what its container has set, all of which must be read."""
    kind, prefix = ready.NODES[program]
    known = {declaring.variable(prefix, one.flag) for one in declaring.options(kind).values() if one.flag}
    own = {name: value for name, value in environment.items() if name.startswith(prefix)}
    assert set(own) <= known
    environment = {"PUMP_ADVERTISE_ADDR": "h:8250", "BINLOG_SERVER_ADVERTISE_ADDR": "h:8249", **own}
    file = ROOT / "deploy" / f"{program}.toml"
    return loading.load(kind, ["--config", str(file)], environment, program=program, env_prefix=prefix)


def mounts(service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for entry in service.get("volumes", ()):
        source, inside, *_ = entry.split(":")
        yield source, inside


def test_compose_names_what_is_there() -> None:
    assert set(SERVICES) >= {"pump-1", "pump-2", "drainer", "etcd", "mariadb", "prometheus", "grafana"}
    used = set()
    for service in SERVICES.values():
        for source, _ in mounts(service):
            if source.startswith("."):
                assert (ROOT / source).exists(), source
            else:
                used.add(source)
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "this host's own"
        if "build" in service:
            assert service["build"]["target"] in STAGES
    assert used == set(COMPOSE["volumes"])
    outside = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len({port.rpartition(":")[0] for port in outside}) == len(outside)


@pytest.mark.parametrize("name", ["pump-1", "pump-2", "drainer"])
def test_nodes_of_compose(name: str) -> None:
    service = SERVICES[name]
    program = service["build"]["target"]
    settings = loaded(program, {**STAGES[program].environment, **service["environment"]})
    assert settings.advertised == f"{name}:{PORTS[program]}"
    assert service["hostname"] == name, "its name in the registry"
    assert settings.pd_urls == "http://etcd:2379"
    assert [inside for _, inside in mounts(service)] == STAGES[program].of("VOLUME")
    assert all(port.endswith(f":{PORTS[program]}") for port in service["ports"])
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_the_drainer_s_downstream() -> None:
    given = SERVICES["drainer"]["environment"]
    assert given["MYSQL_HOST"] in SERVICES
    assert given[PASSWORD_VARIABLE] == SERVICES["mariadb"]["environment"]["MARIADB_ROOT_PASSWORD"]
    assert "MYSQL_HOST" in str(declaring.options(DatabaseOptions)["to_host"].help)


def test_prometheus_of_compose(tmp_path: Path) -> None:
    """Its targets are the nodes, its rules those that are shipped; promtool's word where it is installed."""
    inside = {
        where: ROOT / source for source, where in mounts(SERVICES["prometheus"]) if source.startswith(".")
    }
    document = yaml.safe_load(inside["/etc/prometheus/prometheus.yml"].read_text())
    targets = {
        target
        for job in document["scrape_configs"]
        for one in job["static_configs"]
        for target in one["targets"]
    }
    nodes = {name: service["build"]["target"] for name, service in SERVICES.items() if "build" in service}
    assert targets == {f"{name}:{PORTS[program]}" for name, program in nodes.items()}
    (pattern,) = document["rule_files"]
    shipped = inside["/etc/prometheus/rules"]
    assert {path.name for path in shipped.glob(pattern.removeprefix("rules/"))} == {
        path.name for path in shipped.glob("*.yml") if path.name != "prometheus.yml"
    }
    promtool = shutil.which("promtool")
    if promtool is not None:
        shutil.copy(inside["/etc/prometheus/prometheus.yml"], tmp_path)
        (tmp_path / "rules").symlink_to(shipped)
        checked = subprocess.run(
            [promtool, "check", "config", tmp_path / "prometheus.yml"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_grafana_of_compose() -> None:
    service = SERVICES["grafana"]
    inside = {where: ROOT / source for source, where in mounts(service) if source.startswith(".")}
    provisioning = inside["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/tidb-binlog.yml").read_text())["providers"]
    dashboards = inside[provider["options"]["path"]]
    assert {json.loads(path.read_text())["uid"] for path in dashboards.glob("*.json")}
    home = Path(service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) in inside
    assert (inside[str(home.parent)] / home.name).exists()


def test_not_ready_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["pump", "--addr", "127.0.0.1:1"], "pump: pump at 127.0.0.1:1 does not answer"),
        (["drainer", "--addr", "nowhere"], "drainer: "),
        ([], "usage: "),
    ):
        assert ready.main(words) == ready.NOT_READY
        assert capsys.readouterr().out.startswith(said)
