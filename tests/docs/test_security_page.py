"""docs/security.md from its first command to its last: an authority, certificates, a cluster, who gets in."""

from __future__ import annotations

import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from tests.architecture.source import ROOT
from tests.docs.pages import SECURITY
from tests.waiting import PATIENCE_S, until_served
from tidb_binlog.net.port import free_ports
from tidb_binlog.net.tls import TlsConfig

PROGRAMS = Path(sys.executable).parent
USUAL = ("127.0.0.1:2379", "127.0.0.1:8250", "127.0.0.1:8249")

pytestmark = pytest.mark.integration


@dataclass
class Walk:
    """The page's directory, its addresses by those of the page, and what runs in it."""

    directory: Path
    addresses: dict[str, str]

    def own(self, text: str) -> str:
        for usual, ours in self.addresses.items():
            text = text.replace(usual, ours)
        return text

    def commands(self, program: str) -> list[list[str]]:
        return [shlex.split(self.own(line)) for line in SECURITY.commands() if line.split()[0] == program]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments,
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def get(self, arguments: list[str]) -> dict[str, object]:
        """What `curl` with these arguments gets; `OSError` if it gets nothing."""
        files = {
            flag: str(self.directory / name) for flag, name in pairwise(arguments) if flag.startswith("--")
        }
        context = ssl.create_default_context(cafile=files["--cacert"])
        if "--cert" in files:
            context.load_cert_chain(files["--cert"], files["--key"])
        with urllib.request.urlopen(arguments[-1], context=context, timeout=PATIENCE_S) as reply:
            document: dict[str, object] = json.load(reply)
            return document


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    directory = tmp_path_factory.mktemp("tls")
    addresses = {usual: f"127.0.0.1:{port}" for usual, port in zip(USUAL, free_ports(3), strict=True)}
    found = Walk(directory, addresses)
    for command in found.commands("openssl") + found.commands("chmod"):
        done = found.run(*command)
        assert done.returncode == 0, done.stderr
    files = [str(directory / name) for name in ("ca.pem", "etcd.pem", "etcd.key")]
    port = int(addresses[USUAL[0]].rpartition(":")[2])
    etcd = EtcdServer.start(directory / "etcd", port=port, tls=TlsConfig(*files))
    started: list[subprocess.Popen[bytes]] = []
    context = ssl.create_default_context(cafile=directory / "ca.pem")
    context.load_cert_chain(directory / "operator.pem", directory / "operator.key")
    try:
        for name in ("pump", "drainer"):
            (block,) = [block for block in SECURITY.blocks("toml") if f'ssl-cert = "{name}.pem"' in block]
            (directory / f"{name}.toml").write_text(found.own(block))
            ((program, *arguments),) = found.commands(name)
            started.append(subprocess.Popen([str(PROGRAMS / program), *arguments], cwd=directory))
            address = addresses[USUAL[1] if name == "pump" else USUAL[2]]
            until_served(f"https://{address}/readyz", started[-1], context=context)
        yield found
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
        etcd.stop()


def test_the_etcd_of_the_page_is_the_one_that_runs() -> None:
    ((program, *flags),) = [shlex.split(line) for line in SECURITY.commands() if line.startswith("etcd ")]
    assert program == "etcd"
    tls = TlsConfig("ca.pem", "etcd.pem", "etcd.key")
    server = EtcdServer("data", 2379, 2380, tls)
    ours = server.command()
    told = [word.removeprefix("--") for word in flags]
    text = " ".join(ours).replace("=", " ").replace("--", "")
    for word in told:
        if word.startswith(("cert-file", "key-file", "trusted-ca-file", "client-cert-auth")):
            assert word in text, word


def test_an_operator_gets_in_and_nobody_else(walk: Walk) -> None:
    ((ctl, *arguments),) = walk.commands("binlogctl")
    shown = walk.run(str(PROGRAMS / ctl), *arguments)
    assert shown.returncode in (0, 11), shown.stdout + shown.stderr
    assert "online" in shown.stdout
    allowed, without, guest = (command[1:] for command in walk.commands("curl"))
    assert "CommitTS" in walk.get(allowed)
    for command in (without, guest):
        with pytest.raises(OSError):
            walk.get(command)


def test_a_program_publishes_over_tls(walk: Walk) -> None:
    for script in SECURITY.blocks("python"):
        done = walk.run(sys.executable, "-c", walk.own(script))
        assert done.returncode == 0, done.stderr
    assert (walk.directory / "archive").is_dir()
