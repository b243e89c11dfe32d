"""Times as people write them, against `datetime`; and the commands that translate them."""

from __future__ import annotations

import datetime
import json
import re
import time
import zoneinfo
from pathlib import Path

import pytest

from tests.deploy.binlogctl.conftest import Ctl
from tidb_binlog import time_text, tso
from tidb_binlog.errors import FlagError
from tidb_binlog.etcd.client import EtcdClient

NOW_S = 1_556_443_799.25
SHANGHAI = zoneinfo.ZoneInfo("Asia/Shanghai")
MS = 1_556_443_799_000  # 2019-04-28 09:29:59 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("now", MS + 250),
        ("-2h", MS + 250 - 7_200_000),
        ("-1h30m", MS + 250 - 5_400_000),
        ("@1556443799", MS),
        ("@1556443799.5", MS + 500),
        ("2019-04-28T09:29:59Z", MS),
        ("2019-04-28t09:29:59.5z", MS + 500),
        ("2019-04-28 09:29:59.123456Z", MS + 123),
        ("2019-04-28T17:29:59+08:00", MS),
        ("2019-04-28 17:29:59 +0800", MS),
        ("2019-04-28 09:29:59", MS),
        ("2019-04-28T09:29", MS - 59_000),
        ("2019-04-28", MS - (9 * 3600 + 29 * 60 + 59) * 1000),
    ],
)
def test_forms(text: str, milliseconds: int) -> None:
    assert time_text.parse(text, NOW_S) == tso.compose(milliseconds)


def test_a_timestamp_stays_as_it_is() -> None:
    ts = 408_012_403_141_509_121
    assert time_text.parse(str(ts), NOW_S) == ts
    assert time_text.utc(ts) == "2019-04-28T09:29:58.605Z"
    assert time_text.local(ts) == "2019-04-28 09:29:58.605 +0000"
    assert time_text.local(ts, SHANGHAI) == "2019-04-28 17:29:58.605 +0800"


def test_times_without_a_zone_are_in_the_given_one() -> None:
    assert time_text.parse("2019-04-28 17:29:59", NOW_S, SHANGHAI) == tso.compose(MS)
    assert time_text.parse("2019-04-28T09:29:59Z", NOW_S, SHANGHAI) == tso.compose(MS)


def test_every_moment_comes_back() -> None:
    for ms in range(0, 4_000_000_000_000, 86_399_999_777):
        ts = tso.compose(ms)
        for zone in (None, SHANGHAI, zoneinfo.ZoneInfo("America/New_York")):
            assert time_text.parse(time_text.local(ts, zone), NOW_S) == ts
        assert time_text.parse(time_text.utc(ts), NOW_S) == ts
        shown = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
        assert time_text.utc(ts)[:19] == shown.isoformat()[:19]


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "1556443799", "1556443799000", "9" * 19, "@", "@x", "-2 hours", "+2h", "2019-13-01",
     "2019-04-28 25:00:00", "2019-04-28T09:29:59+99:00", "28.4.2019", "@-5", "-999999h"],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(FlagError) as error:
        time_text.parse(text, NOW_S)
    assert error.value.hint


async def test_position(ctl: Ctl) -> None:
    done = await ctl("position", "2019-04-28 17:29:59", "-time-zone", "Asia/Shanghai", "-output", "json")
    told = json.loads(done.out)
    assert told["ts"] == tso.compose(MS)
    assert told["Asia/Shanghai"] == "2019-04-28 17:29:59.000 +0800"
    back = await ctl("position", str(told["ts"] + 3))
    assert re.search(r"^logical +3$", back.out, re.M)
    assert re.search(r"^UTC +2019-04-28T09:29:59\.000Z$", back.out, re.M)
    assert (await ctl("position", "now", "-time-zone", "Nowhere/X")).code == 2


async def test_savepoint_at(ctl: Ctl, tmp_path: Path) -> None:
    where = ("-data-dir", str(tmp_path / "d"))
    done = await ctl("savepoint", "at", "2019-04-28T09:29:59Z", *where)
    assert done.code == 0
    assert (tmp_path / "d" / "savepoint").read_text() == f"commitTS = {tso.compose(MS)}\n"
    again = await ctl("savepoint", "at", "-2h", *where)
    assert (again.code, "is there already" in again.err) == (4, True)
    replaced = await ctl("savepoint", "at", "-2h", *where, "-yes", "-output", "json")
    assert json.loads(replaced.out)["commitTS"] > tso.compose(MS)
    ahead = await ctl("savepoint", "at", "2099-01-01", "-data-dir", str(tmp_path / "e"))
    assert (ahead.code, "is still to come" in ahead.err) == (4, True)
    assert not (tmp_path / "e").exists()


async def test_savepoint_now_asks_the_upstream(ctl: Ctl, etcd_clean: str, tmp_path: Path) -> None:
    from tidb_binlog.upstream.standalone import StandaloneUpstream

    where = ("-data-dir", str(tmp_path), "-pd-urls", etcd_clean, "-output", "json")
    none = await ctl("savepoint", "now", *where)
    assert (none.code, none.out) == (4, ""), "no cluster is founded by looking for one"
    upstream = await StandaloneUpstream.connect(etcd_clean)
    before = await upstream.oracle.timestamp()
    done = await ctl("savepoint", "now", *where)
    after = await upstream.oracle.timestamp()
    await upstream.close()
    assert before < json.loads(done.out)["commitTS"] < after


async def test_advance_sets_the_clock_of_a_cluster_forward(ctl: Ctl, etcd_clean: str) -> None:
    from tidb_binlog.upstream.standalone import StandaloneUpstream, layout

    where = ("-pd-urls", etcd_clean)
    assert (await ctl("advance", "now", "-yes", *where)).code == 4, "no cluster is founded by it"
    upstream = await StandaloneUpstream.connect(etcd_clean)
    client = await EtcdClient.connect(etcd_clean)
    await client.put(layout.TSO, b"%d" % tso.compose(MS))
    asked = await ctl("advance", "now", *where)
    assert (asked.code, "say it again with -yes" in asked.err) == (4, True)
    ahead = await ctl("advance", "2099-01-01", "-yes", *where)
    assert (ahead.code, "is still to come" in ahead.err) == (4, True)
    done = await ctl("advance", "2019-04-28T09:30:59Z", "-yes", *where)
    assert (done.code, "2019-04-28T09:30:59.000Z" in done.out) == (0, True)
    back = await ctl("advance", "2019-04-28T09:29:00Z", "-yes", *where)
    assert (back.code, "2019-04-28T09:30:59.000Z" in back.out) == (0, True), "never back"
    assert await upstream.oracle.timestamp() > tso.compose(MS + 60_000)
    await client.close()
    await upstream.close()


async def test_savepoint_of_a_dump_and_of_a_backup(ctl: Ctl, tmp_path: Path) -> None:
    ts = tso.compose(MS) + 3
    metadata = f"SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {ts}\n\tGTID:\n\nFinished dump at: 2019\n"
    (tmp_path / "metadata").write_text(metadata)
    (tmp_path / "backupmeta").write_bytes(b"\x08\x07\x30" + _varint(ts))
    for command, name in (("from-dumpling", "d"), ("from-br", "b")):
        where = ("-data-dir", str(tmp_path / name))
        done = await ctl("savepoint", command, str(tmp_path), *where)
        assert done.code == 0, done.err
        assert (tmp_path / name / "savepoint").read_text() == f"commitTS = {ts}\n"
        assert re.search(r"^UTC +2019-04-28T09:29:59\.000Z$", done.out, re.M)
        again = await ctl("savepoint", command, str(tmp_path), *where)
        assert (again.code, "is there already" in again.err) == (4, True)
    (tmp_path / "metadata").write_text(metadata.replace(str(ts), str(ts + (10**13 << 18))))
    ahead = await ctl("savepoint", "from-dumpling", str(tmp_path), "-data-dir", str(tmp_path / "e"))
    assert (ahead.code, "still to come" in ahead.err) == (4, True)


def _varint(value: int) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value])
