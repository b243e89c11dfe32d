"""docs/packages.md: what its commands name is there.

The package is built, installed, started, upgraded and purged in tests/deploy/test_debian.py; Dockerfile and
compose.yaml are read in tests/deploy/test_containers.py.
"""

from __future__ import annotations

import re
import shlex

from binlogctl import ready
from binlogctl.cli import command_line
from tests.architecture.source import ROOT
from tests.cases import case
from tests.deploy.containers import PORTS, SERVICES, STAGES
from tidb_binlog.config import declaring
from tidb_binlog.version import VERSION

PAGE = (ROOT / "docs" / "packages.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()
]
DEBIAN = ROOT / "deploy" / "debian"
UNITS = {f"{name}{suffix}" for name in PORTS for suffix in ("", "@b")}
CONFIGURATION = {f"/etc/tidb-binlog/{name}.toml" for name in ("pump", "pump-b", "drainer")}


def compose(arguments: list[str]) -> None:
    action, *rest = arguments
    words = [word for word in rest if not word.startswith("--") or action == "run"]
    if action in ("up", "down"):
        assert words == []
        return
    if action == "run":
        assert words.pop(0) == "--rm"
    service, program, *more = words
    assert service in SERVICES
    if program == "binlogctl":
        assert isinstance(command_line.parse(more, {}), command_line.Call)
    elif action == "run":
        assert program.startswith("/examples/")
        text = (ROOT / program.lstrip("/")).read_text()
        assert all(f'"{word}"' in text for word in more if word.startswith("--"))
        assert {"etcd", "mariadb"} <= {word.partition(":")[0] for word in more}
        assert more[more.index("--password") + 1] == "trial"


def test_commands() -> None:
    for command in COMMANDS:
        with case(command):
            program, *arguments = shlex.split(command.removeprefix("sudo "))
            if program == "apt-get":
                action, *names = [word for word in arguments if not word.startswith("--")]
                assert action in ("install", "remove", "purge")
                control = (DEBIAN / "control").read_text()
                packages = {"tidb-binlog", f"./build/deb/tidb-binlog_{VERSION}_amd64.deb", "build-essential"}
                assert set(names) <= packages | set(re.findall(r"python3-venv|debhelper", control))
            elif program == "make":
                assert arguments[0] in ("deb", "release-check")
                assert re.search(rf"^{arguments[0]}:.*\n\t\S", (ROOT / "Makefile").read_text(), re.M)
            elif program == "binlogctl":
                assert isinstance(command_line.parse(arguments, {}), command_line.Call)
                assert arguments[0] == "close" or arguments[-1] in CONFIGURATION
            elif program == "systemctl":
                assert arguments[-1] in UNITS
                if arguments[0] == "reload":
                    assert (
                        "ExecReload="
                        in (ROOT / "deploy" / "systemd" / f"{arguments[-1]}.service").read_text()
                    )
            elif program == "docker" and arguments[0] == "compose":
                compose(arguments[1:])
            elif program == "docker":
                target, tag = (arguments[arguments.index(flag) + 1] for flag in ("--target", "--tag"))
                assert target in STAGES
                assert tag == f"tidb-binlog-{target}:{VERSION}"
                assert f"#   {command}" in (ROOT / "Dockerfile").read_text()
            elif program == "python":
                assert arguments[:2] == ["-m", ready.__name__]
                assert arguments[2] in ready.NODES
            else:
                assert program in ("install", "cp")
                assert any(
                    word in CONFIGURATION or word.startswith("/etc/tidb-binlog/") for word in arguments
                )


def test_the_commands_of_compose_are_those_of_its_file() -> None:
    head = (ROOT / "compose.yaml").read_text().split("name:", 1)[0]
    assert [line.removeprefix("#   ") for line in head.splitlines() if line.startswith("#   ")] == [
        line
        for line in COMMANDS
        if line.startswith("docker compose") and "pump-1" not in line and "down" not in line
    ]


def test_ports_of_compose_are_told() -> None:
    told = {int(port) for port in re.findall(r"`(?:http://)?127\.0\.0\.1:(\d+)`", PAGE)}
    opened = {int(port.split(":")[1]) for one in SERVICES.values() for port in one.get("ports", ())}
    assert told == opened - {2379}


def test_variables_that_are_told_are_those_of_the_files() -> None:
    used = set(re.findall(r"\$\{(\w+):-trial\}", (ROOT / "compose.yaml").read_text()))
    assert used == {"VERSION", "DOWNSTREAM_PASSWORD", "GRAFANA_PASSWORD"}
    assert all(f"`{name}`" in PAGE for name in used - {"VERSION"})
    known = {
        declaring.variable(prefix, one.flag)
        for kind, prefix in ready.NODES.values()
        for one in declaring.options(kind).values()
        if one.flag
    }
    told = set(re.findall(r"`((?:PUMP|BINLOG_SERVER)_[A-Z_]*[A-Z])`", PAGE))
    assert len(told) == 4
    assert told <= known
