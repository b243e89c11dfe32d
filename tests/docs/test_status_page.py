"""docs/status-page.md: its commands are run, its parts and decisions are those of the pages."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

from drainer.ddl.quarantine.entry import DECISIONS
from tests import certificates
from tests.architecture.source import ROOT
from tests.common.page.support.hostile import filled
from tests.common.serving.status_scene import Scene
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.door.server.listener import serve
from tidb_binlog.net.tls import ServerTls, TlsConfig
from tidb_binlog.observe.recent_events import EVENTS_MAX
from tidb_binlog.page import drainer_sections, pump_sections
from tidb_binlog.page.refresh import REFRESH_S
from tidb_binlog.status.drainer import DrainerDocument, WaitingDdl
from tidb_binlog.status.pump import PumpDocument

PAGE = (ROOT / "docs" / "status-page.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()
]


def run(line: str, directory: Path) -> str:
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=False, cwd=directory, timeout=PATIENCE_S
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


async def test_its_commands(tmp_path: Path) -> None:
    ca = certificates.authority()
    files = certificates.write(tmp_path / "made", ca=[ca], node=certificates.leaf("node", ca=ca))
    for made, name in ((files.ca, "ca.pem"), (files.cert, "client.pem"), (files.key, "client-key.pem")):
        shutil.copy(made, tmp_path / name)
    secured = TlsConfig(files.ca, files.cert, files.key, ("node",)).server_tls()
    clear: ServerTls | None = None
    async with AsyncExitStack() as ends:
        ports = {}
        for name, tls in (("127.0.0.1:8250", clear), ("127.0.0.1:8249", clear), ("localhost:8250", secured)):
            scene = Scene(clock=SystemClock())
            server = await serve([], scene.routes, "127.0.0.1", 0, tls=tls)
            ends.push_async_callback(server.stop, 0.1)
            ports[name] = f"{name.partition(':')[0]}:{server.port}"
        for line in COMMANDS:
            shown = re.sub("|".join(ports), lambda found: ports[found[0]], line)
            said = await asyncio.to_thread(run, shown, tmp_path)
            assert line.startswith("openssl") or "Takes binlogs" in said, line
    assert (tmp_path / "client.p12").stat().st_size > 0
    assert len(COMMANDS) == 4


def test_it_names_every_part_of_both_pages() -> None:
    shown = [title for title, _ in drainer_sections.sections(filled(DrainerDocument, text="a"))]
    shown += [title for title, _ in pump_sections.sections(filled(PumpDocument, text="a"))]
    parts = {re.sub(r" \([\d,]+\)$", "", title) for title in shown}
    rare = {"Rows that were not as they should be", "The downstream went back", "Closing"}
    rows = " ".join(re.findall(r"^\| (.+?) \|", PAGE, re.M)).lower()
    for part in parts - rare:
        assert part.lower() in rows, part


def test_its_decisions_and_numbers_are_true() -> None:
    waiting = WaitingDdl(job_id=12, possible=list(DECISIONS))
    (listed,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S)
    assert listed.splitlines() == drainer_sections.commands(waiting, "drainer-1")
    assert all(shlex.split(line)[0] == "binlogctl" for line in listed.splitlines())
    assert f"refreshes every {REFRESH_S} seconds" in PAGE
    assert f"the last {EVENTS_MAX} lines" in PAGE
