"""docs/terabytes.md: its commands and what it says of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from drainer.config.options import DrainerConfig
from tests.deploy.binlogctl.conftest import Ctl
from tests.drainer.support.payloads import number
from tidb_binlog import errors, tso
from tidb_binlog.upstream.standalone import StandaloneUpstream

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "terabytes.md").read_text()
SHELL = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S))
COMMANDS = [shlex.split(line) for line in SHELL.splitlines()]


@pytest.fixture
async def backups(etcd_clean: str, tmp_path: Path) -> int:
    """Both kinds, of a cluster that is there, and a drainer's file; their timestamp."""
    upstream = await StandaloneUpstream.connect(etcd_clean)
    ts, cluster_id = await upstream.oracle.timestamp(), upstream.cluster_id
    await upstream.close()
    for name in ("dump", "br"):
        (tmp_path / "backup" / name).mkdir(parents=True)
    (tmp_path / "backup" / "dump" / "metadata").write_text(
        f"SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {ts}\n\nFinished dump at: 2026-11-23 03:00:00\n"
    )
    meta = number(1, cluster_id) + number(5, ts) + number(6, ts)
    (tmp_path / "backup" / "br" / "backupmeta").write_bytes(meta)
    (tmp_path / "drainer.toml").write_text(
        f'pd-urls = "{etcd_clean}"\nnode-id = "d"\ndata-dir = "{tmp_path}/data"\n[syncer]\ndb-type = "file"\n'
    )
    (tmp_path / "data").mkdir()
    return ts


def savepoints() -> list[list[str]]:
    return [argv[1:] for argv in COMMANDS if argv[:2] == ["binlogctl", "savepoint"]]


async def test_its_commands_store_the_timestamp(backups: int, ctl: Ctl, tmp_path: Path) -> None:
    def here(argv: list[str]) -> list[str]:
        return [
            word.replace("/backup", str(tmp_path / "backup")).replace(
                "drainer.toml", str(tmp_path / "drainer.toml")
            )
            for word in argv
        ]

    dump, br, at = savepoints()
    for argv in (dump, br):
        done = await ctl(*here(argv))
        assert done.code == 0, done.err
        assert str(backups) in done.out
        assert f"commitTS = {backups}\n" in (tmp_path / "data" / "savepoint").read_text()
        again = await ctl(*here(argv))
        assert (again.code, "-yes" in again.err) == (4, True)
        (tmp_path / "data" / "savepoint").unlink()
    assert (await ctl(*here(at))).code == 0
    assert f"commitTS = {at[2]}\n" in (tmp_path / "backup" / "position" / "savepoint").read_text()


async def test_what_it_says_may_go_wrong_is_said(backups: int, ctl: Ctl, tmp_path: Path) -> None:
    rows = re.findall(r"^\| ([a-z][^|]*) \| (\d) \|", PAGE, re.M)
    meta = tmp_path / "backup" / "br" / "backupmeta"
    metadata = tmp_path / "backup" / "dump" / "metadata"
    good, text = meta.read_bytes(), metadata.read_text()
    file = ("-drainer-config", str(tmp_path / "drainer.toml"))
    found: dict[str, int] = {}

    async def call(tool: str, *more: str) -> None:
        done = await ctl("savepoint", f"from-{tool[0]}", str(tmp_path / "backup" / tool[1]), *more)
        found[done.err] = done.code

    dump, br = ("dumpling", "dump"), ("br", "br")
    metadata.write_text(text.replace("Finished", ""))
    await call(dump, *file)
    metadata.write_text(text.replace("tidb-binlog", "mysql-bin.1"))
    await call(dump, *file)
    meta.write_bytes(b"\xff" + good)
    await call(br, *file)
    meta.write_bytes(number(1, 5) + number(6, backups))
    await call(br, *file)
    metadata.write_text(text.replace(str(backups), str(backups + (10**12 << tso.LOGICAL_BITS))))
    await call(dump, "-data-dir", str(tmp_path / "other"))
    said = " ".join(found)
    for what, code in rows:
        if what == "the downstream has a checkpoint":  # tests/drainer/points/load/test_imported.py
            assert int(code) == errors.Rejected.exit_code
            continue
        words = what.replace("a backup of another cluster", "is of cluster 5")
        assert [number for text, number in found.items() if words in text] == [int(code)], (what, said)


def test_what_it_names_is_there() -> None:
    assert f"`gc` of a Pump is {_gc()} days" in PAGE
    for name in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE):
        assert name in ("data-dir", "initial-commit-ts", "pd-urls"), name
    assert DrainerConfig().initial_commit_ts == -1
    assert ["drainer", "-config", "drainer.toml"] in COMMANDS
    assert ["binlogctl", "verify", "-drainer-config", "drainer.toml"] in COMMANDS


def _gc() -> str:
    shipped = (ROOT / "deploy" / "pump.toml").read_text()
    found = re.search(r"^gc = (\d+)$", shipped, re.M)
    assert found is not None
    return found[1]
