"""Ports and socket files: which are free, what is removed or refused, and what a path may look like."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tidb_binlog.door.server.listener import serve_unix
from tidb_binlog.errors import ConfigError, PortTaken
from tidb_binlog.net import port


def listener(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(str(path))
    found.listen(1)
    return found


def test_free_ports_are_not_those_that_connections_get() -> None:
    found = port.free_ports(500)
    assert len(set(found)) == 500
    assert max(found) < 32_768, "where Linux begins those, unless told otherwise"
    assert not set(found) & set(port.free_ports(500))
    with socket.socket() as taken:
        taken.bind((port.LOOPBACK, found[0]))
        with pytest.raises(PortTaken):
            port.check_port_free(port.LOOPBACK, found[0])


def test_a_port_that_is_wanted_is_given_once_and_only_where_nobody_listens() -> None:
    (wanted,) = port.free_ports(1)
    assert port.free_port(wanted) != wanted, "this process gave it away"
    with socket.socket() as found:
        found.bind((port.LOOPBACK, 0))
        found.listen(1)
        taken = found.getsockname()[1]
        assert port.free_port(taken) != taken
    assert port.free_port(taken) == taken
    assert port.free_port(taken) != taken


def test_paths() -> None:
    for text in ("unix:///run/p.sock", "/run/p.sock", "unix:///run/p.sock"):
        assert port.socket_path("socket", text) == "/run/p.sock"
    assert port.socket_path("socket", "unix://here.sock") == "here.sock"
    for text in ("", "unix://", "http://a/b", "/run/", "unixs:///a"):
        with pytest.raises(ConfigError, match="bad socket format"):
            port.socket_path("socket", text)


def test_only_a_dead_socket_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    port.check_socket_free(str(path))
    with listener(path):
        with pytest.raises(PortTaken, match="another process does"):
            port.check_socket_free(str(path))
        # One whose queue is full (of the probe above and one more) is busy, not dead.
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(path))
            with pytest.raises(PortTaken):
                port.check_socket_free(str(path))
    assert path.exists()
    port.check_socket_free(str(path))
    assert not path.exists()
    path.write_text("a letter")
    with pytest.raises(ConfigError, match="it is there and no socket"):
        port.check_socket_free(str(path))
    assert path.read_text() == "a letter"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="it is there and no socket"):
        port.check_socket_free(str(path))


async def test_door_on_a_socket_file(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    server = await serve_unix([], str(path))
    mode = path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660
    await server.stop(0.0)
    assert not path.exists()
    # A successor's file is not ours.
    server = await serve_unix([], str(path))
    os.unlink(path)
    with listener(path):
        await server.stop(0.0)
        assert path.exists()


async def test_impossible_places(tmp_path: Path) -> None:
    for path, why in (
        (tmp_path / "none" / "p.sock", "No such file or directory"),
        (tmp_path / ("x" * 120), "too long"),
    ):
        with pytest.raises(ConfigError, match=why) as caught:
            await serve_unix([], str(path))
        assert caught.value.hint
        assert caught.value.exit_code == 1


def test_a_port_is_not_given_to_two_processes() -> None:
    ours, other = port.free_ports(2)
    for mark in port._claims:
        os.close(mark)
    port._claims.clear()
    assert port._claim(ours)
    code = f"""
from types import SimpleNamespace
from tidb_binlog.net import port
drawn = [{ours}, {other}, {other} + 1]
port._random = SimpleNamespace(choice=lambda ports: drawn.pop(0))
print(port.free_ports(1), port.free_port({ours}) == {ours})
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout == f"[{other}] False\n", "nobody listens there yet"
