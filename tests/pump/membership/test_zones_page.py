"""docs/zones.md: its file, programs and commands, on two pumps in two zones."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pump.config import ENV_PREFIX, PumpConfig
from pump.membership import score
from pumpclient.options import Options
from tests.pump.support.process import Start
from tests.waiting import PATIENCE_S
from tidb_binlog.config import loading
from tidb_binlog.etcd.registry import connect_registry

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "zones.md").read_text()
FILES = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stderr}"
    return done.stdout


@pytest.mark.integration
async def test_its_pump_programs_and_command(pump: Start, etcd_clean: str, tmp_path: Path) -> None:
    (tmp_path / "pump.toml").write_text(FILES[0])
    near = pump(f"-config={tmp_path}/pump.toml", directory="near")
    # Its time marks would count as records.
    far = pump("-node-id=pump-b", "-label=zone=b", "-fake-binlog-interval=3600", directory="far")
    await near.start_and_wait()
    await far.start_and_wait()
    registry = await connect_registry(etcd_clean)
    entries = (await registry.view()).pumps
    await registry.close()
    assert entries["pump-a"].status.labels == {"zone": "a", "rack": "r12"}
    assert entries["pump-b"].status.label == {"labels": {"zone": "b"}}
    assert all(1 <= entry.status.score <= score.BEST for entry in entries.values())

    endpoint, elsewhere = etcd_clean.removeprefix("http://"), 0
    printed = [
        await asyncio.to_thread(run, "-c", program.replace("127.0.0.1:2379", endpoint))
        for program in PROGRAMS
    ]
    rates = [f"{entries[name].status.score}" for name in ("pump-a", "pump-b")]
    pumps = f"pump-a {{'zone': 'a', 'rack': 'r12'}} {rates[0]}\npump-b {{'zone': 'b'}} {rates[1]}\n"
    assert printed == ["", "", pumps, pumps], "each with asyncio, too"
    for number in range(5):  # where the near one did not answer in time, the far one may have got it
        stored = [(await one.status())["pump"]["stages"]["written"]["records"] for one in (near, far)]
        if stored[0] >= 2 and not stored[1] - elsewhere:
            break
        elsewhere = stored[1]
        again = PROGRAMS[0].replace("127.0.0.1:2379", endpoint).replace('"shop"', f'"shop{number}"')
        await asyncio.to_thread(run, "-c", again)
    else:
        pytest.fail("prewrite and commit of the DDL went to the far pump five times")

    (command,) = COMMANDS
    program, *words = command.split()
    assert program == "binlogctl"
    told = await asyncio.to_thread(run, "-m", "binlogctl", *words, f"-pd-urls={etcd_clean}")
    shown = {one["nodeId"]: (one["label"]["labels"], str(one["score"])) for one in json.loads(told)["pumps"]}
    assert shown == {"pump-a": ({"zone": "a", "rack": "r12"}, rates[0]), "pump-b": ({"zone": "b"}, rates[1])}


def test_its_figures() -> None:
    given = loading.load(PumpConfig, ["-label", "zone=a,rack=r12"], {}, program="pump", env_prefix=ENV_PREFIX)
    assert given.labels == {"zone": "a", "rack": "r12"}
    assert [f"{name}={value}" for name, value in given.labels.items()] == tomllib.loads(FILES[0])["label"]
    assert f"changes in steps of at least {score.STEP}, and at most once in {score.PAUSE_S:g} s" in PAGE
    assert f"halves every {score.HALF_LIFE_S:g} s" in PAGE
    assert f"every {Options().probe_interval_s:g} s" in PAGE
    assert Options().errors_max + 1 == 11
    assert "eleven times in a row" in PAGE
