"""docs/notify.md: its receiver takes what a node sends and refuses what another one signed; all types, keys
and figures are those of the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.operate.status.conditions import conditions
from tidb_binlog.clock import SystemClock
from tidb_binlog.config import loading
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.http_client import HttpClient
from tidb_binlog.notify import notifier
from tidb_binlog.notify.events import SCHEMA, Condition, Events, Origin, State, Type
from tidb_binlog.notify.notifier import Notifier
from tidb_binlog.observe import metrics
from tidb_binlog.serving.notify_options import SECRET_VARIABLE

PAGE = (Path(__file__).parents[2] / "docs" / "notify.md").read_text()


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)[number]


async def test_the_receiver_takes_what_is_signed_with_its_secret(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """Secret and configuration are made as the page says."""
    commands = (block("sh") + block("sh", 1)).replace("/etc/tidb-binlog", str(tmp_path))
    make, protect, start = commands.splitlines()
    for command in (make, protect):
        subprocess.run(["sh", "-c", command], check=True)
    (tmp_path / "receiver.py").write_text(block("python"))
    port = free_port()
    words = start.replace("python3", sys.executable).replace("9099", str(port)).split()
    receiver = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        file = tmp_path / "drainer.toml"
        text = block("toml").replace("/etc/tidb-binlog", str(tmp_path))
        file.write_text(text.replace("https://hooks.example/", f"http://127.0.0.1:{port}/"))
        settings = loading.load(
            DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX
        )
        client = HttpClient(SystemClock(), None, 5.0)
        while True:  # until it listens
            try:
                forged = await client.ask(
                    "POST", f"127.0.0.1:{port}", "/", b"{}", {"webhook-signature": "v1,AA"}
                )
                break
            except Unavailable:
                assert receiver.poll() is None
        assert forged.status == 401
        end = settings.notify_endpoint
        assert end is not None
        told = Notifier(end, "drainer", "drainer-1", SystemClock())
        told.happened(Condition(Type.TOOK_OVER, "drainer-1", "a standby took over"))
        await told.finish(0, None)
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "standby_took_over happened a standby took over\n"
        assert receiver.stdout.readline() == "ended happened ended with exit code 0: stopped on request\n"
    finally:
        receiver.kill()
        receiver.communicate()


def test_the_document_is_as_shown() -> None:
    shown = json.loads(block("json"))
    details = shown["details"]
    status = {"DDL": {"waiting": [{**details, "decision": ""}]}}
    (event,) = Events(Origin("drainer", "drainer-1", "5f0c6a1be2d4")).look(conditions(status), 1795425600.5)
    made = json.loads(event.body())
    assert made == {**shown, "id": "5f0c6a1be2d4-1"}
    table = PAGE.split("| Key | What it is |")[1].split("\n\n")[0]
    assert re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:])) == list(
        shown
    )
    assert shown["schema"] == SCHEMA


def test_types_states_metrics_and_figures_are_those_of_the_code() -> None:
    table = PAGE.split("| Type | When |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.M)) == set(Type)
    assert all(f"`{state}`" in PAGE for state in State)
    names = {name for name in metrics.declared() if "_notify_" in name}
    assert set(re.findall(r"`(binlog_common_notify_\w+)", PAGE)) == names
    assert SECRET_VARIABLE in PAGE
    assert (notifier.LOOK_S, notifier.END_S, notifier.SIZE_MAX) == (2.0, 5.0, 256)
    assert (notifier.PAUSE_FIRST_S, notifier.PAUSE_MAX_S) == (1.0, 60.0)
