"""Processes that somebody looks at: top until q or a signal, close until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.deploy.binlogctl.conftest import Ctl
from tests.deploy.binlogctl.support.scripted_node import ScriptedNode, listening
from tests.waiting import PATIENCE_S
from tidb_binlog.cluster.node import ONLINE, NodeStatus
from tidb_binlog.cluster.registry import PUMPS
from tidb_binlog.etcd.registry import EtcdRegistry

ROOT = Path(__file__).parents[4]

pytestmark = pytest.mark.integration


def command(etcd: str) -> list[str]:
    return [sys.executable, "-m", "binlogctl", "top", "-interval", "100ms", "-pd-urls", etcd]


def read_until(descriptor: int, wanted: bytes) -> bytes:
    read = b""
    while wanted not in read:
        piece = os.read(descriptor, 65536)
        assert piece, read
        read += piece
    return read


def test_on_a_terminal_until_q(etcd_clean: str) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    process = subprocess.Popen(
        command(etcd_clean), cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    try:
        read_until(ours, b"no pump is online")
        assert not termios.tcgetattr(theirs)[3] & termios.ECHO
        os.write(ours, b"xq")
        read_until(ours, b"\x1b[?1049l")  # the page is gone, what was there before is back
        assert process.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


async def test_a_small_terminal_scrolls_and_sorts_by_keys(registry: EtcdRegistry, etcd: str) -> None:
    for number in range(12):
        pump = NodeStatus(f"p-{number:02}", f"127.0.0.1:{30 - number}", ONLINE)
        await registry.put(PUMPS, pump, 0)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "10"}
    words = [*command(etcd), "-interval", "1h"]  # what is drawn again is drawn for a key
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    try:
        seen = read_until(ours, b"by name")
        if b"p-00" not in seen:  # before the answer of the cluster
            seen = read_until(ours, b"by name")
        assert b"p-00" in seen
        assert b"p-11" not in seen
        os.write(ours, b"\x1b[6~")
        assert b"p-11" in read_until(ours, b"by name")
        os.write(ours, b"sg")
        seen = read_until(ours, b"by address")
        assert b"p-11" in seen, "its address is the first in the order of the alphabet"
        assert b"p-00" not in seen
        os.write(ours, b"q")
        read_until(ours, b"\x1b[?1049l")
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_lines_elsewhere_until_a_signal(etcd_clean: str) -> None:
    with subprocess.Popen(
        command(etcd_clean), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:  # a pipe left open by a test that fails would be told in whichever test runs then
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            assert sum(b"error: cluster no pump is online" in line for line in lines) == 2
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
            assert b"Traceback" not in process.communicate()[1]
        finally:
            process.kill()


async def test_once(registry: EtcdRegistry, etcd: str, ctl: Ctl) -> None:
    status = {"CommitTS": 0, "ErrMsg": "", "pump": {"watermark": 5 << 18, "open_prewrites": 2}}
    async with listening(ScriptedNode(status=status)) as address:
        await registry.put(PUMPS, NodeStatus("p", address, ONLINE), 0)
        done = await ctl("top", "-once", "-pd-urls", etcd)
    assert done.code == 12, "there is no drainer"
    assert "2 open prewrites" in done.out
    assert (await ctl("top", "-interval", "0s", "-pd-urls", etcd)).code == 2
    assert "use name, address, state, behind" in (await ctl("top", "-sort", "size", "-pd-urls", etcd)).err


async def test_a_close_goes_on_when_nobody_looks_any_more(registry: EtcdRegistry, etcd: str) -> None:
    leaving = {"waits_for": "drainers: d is 9.0 s behind", "left_s": 9.0}
    node = ScriptedNode(status={"pump": {"node_id": "p", "leaving": leaving}})
    async with listening(node) as address:
        await registry.put(PUMPS, NodeStatus("p", address, ONLINE), 0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "binlogctl", "close", "p", "-pd-urls", etcd),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE_S):
                assert await process.stdout.readline() == b"pump p was asked to close\n"
                waits = b"pump p waits for drainers: d is 9.0 s behind, about 9.0 s left\n"
                assert await process.stdout.readline() == waits
                process.send_signal(signal.SIGINT)
                _, told = await process.communicate()
            assert process.returncode == 130
            assert told == b"binlogctl: pump p goes on to close; `binlogctl status` shows how far it is\n"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert node.asked == ["/state/p/close"]
