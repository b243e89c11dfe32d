"""/status: Go's keys first, the lag with what holds it, and what a pump says of itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from drainer.operate.control.http import NodeState, Shown
from drainer.operate.control.pause_and_reload import Control
from drainer.operate.control.standby import Standby, StandbyStatus
from drainer.operate.status.document import BEHIND_S, CURRENT_S, Cadence, Status, text
from drainer.operate.status.pump_status import PACE_S, SILENT_S, PumpStatusReader, read_status
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.cluster import node
from tidb_binlog.observe import metrics
from tidb_binlog.status.drainer import LaneStatus, MismatchStatus, SourceStatus

NOW_S = 1_700_000_000.0


def ts(behind_s: float) -> int:
    return tso.from_wall_s(NOW_S - behind_s)


@dataclass
class Applier:
    transactions: int = 0
    rows: int = 0
    stored_ts: int = ts(100)
    resolved_ts: int = ts(90)
    handed_over_ts: int = ts(80)
    doing: str = "applying"
    held_up: str = ""
    lanes: list[LaneStatus] = field(default_factory=lambda: [LaneStatus()])

    def lane_states(self) -> list[LaneStatus]:
        return self.lanes

    def mismatches(self) -> MismatchStatus:
        return MismatchStatus(rows={"shop.orders": 3}, texts={"shop.orders": {"note": 1}}, last_s=9.0)


@dataclass
class Collector:
    waits_for: str = ""
    queued_batches: int = 3
    places: dict[str, int] = field(default_factory=lambda: {"fast": ts(0), "slow": ts(70)})
    connected: bool = True

    def positions(self) -> dict[str, int]:
        return self.places

    def states(self) -> dict[str, SourceStatus]:
        return {name: SourceStatus(connected=self.connected, address=f"{name}:1") for name in self.places}


def pump_page(*, watermark_behind_s: float, start_ts: int = 0, unfiled_s: float = 0.0) -> bytes:
    oldest = [{"start_ts": start_ts, "age_s": 66.0, "table_id": 7, "upstream": "it may still commit"}]
    pump = {
        "watermark": ts(watermark_behind_s),
        "oldest": oldest if start_ts else [],
        "stages": {"indexed": {"lag_s": unfiled_s}},
    }
    return json.dumps({"status": {}, "CommitTS": 1, "pump": pump}).encode()


class World:
    def __init__(self, page: bytes = b"{}", *, host_ahead_s: float = 0.0) -> None:
        self.clock = ManualClock(NOW_S + host_ahead_s)
        self.applier, self.collector = Applier(), Collector()
        self.control = Control(self.clock)
        self.asked: list[str] = []
        self.page = page
        self.status = Status(
            self.applier,
            self.collector,
            NodeState("d", node.ONLINE),
            self.clock,
            300.0,
            control=self.control,
            pump_status=PumpStatusReader(self.clock, fetch=self._fetch),
            more=lambda: {"Quarantine": []},
            upstream_s=lambda: self.clock.wall_s() - host_ahead_s,
        )

    async def _fetch(self, address: str) -> bytes:
        self.asked.append(address)
        return self.page


async def test_the_go_keys_come_first() -> None:
    document = World().status.document()
    assert list(document)[:4] == ["PumpPos", "Synced", "LastTS", "TsMap"]
    assert document["PumpPos"] == {"fast": ts(0), "slow": ts(70)}
    assert (document["LastTS"], document["TsMap"], document["Synced"]) == (ts(100), "", False)
    assert document["Quarantine"] == []
    assert document["Drift"] == {
        "Rows": {"shop.orders": 3},
        "Texts": {"shop.orders": {"note": 1}},
        "LastS": 9.0,
        "TextsLastS": 0.0,
    }
    json.dumps(document)


@pytest.mark.parametrize("ahead_s", [8 * 86_400.0, -8 * 86_400.0])
async def test_the_lag_is_by_the_upstreams_clock_wherever_this_hosts_stands(ahead_s: float) -> None:
    found = World(host_ahead_s=ahead_s).status.document()
    assert found["Lag"] == World().status.document()["Lag"]
    assert found["LagSeconds"] == 90.0
    assert found["Time"] == NOW_S + ahead_s, "others compare clocks by it"


async def test_the_pump_that_holds_the_stream_is_asked_and_believed() -> None:
    world = World(pump_page(watermark_behind_s=70, start_ts=4242, unfiled_s=0.0))
    await world.status.note()
    assert world.asked == ["slow:1"]
    lag = world.status.document()["Lag"]
    assert lag["sort_wait_s"] == pytest.approx(70, abs=0.01)
    assert (lag["queue_s"], lag["apply_s"]) == (pytest.approx(10, abs=0.01), pytest.approx(10, abs=0.01))
    assert lag["total_s"] == pytest.approx(90, abs=0.01)
    assert (lag["pump"], lag["start_ts"]) == ("slow", 4242)
    assert "start_ts 4242" in lag["reason"]
    assert "table 7; it may still commit" in lag["reason"]


async def test_a_pump_is_asked_at_a_pace_and_a_silent_one_seldom() -> None:
    world = World(pump_page(watermark_behind_s=0))
    for _ in range(3):
        await world.status.note()
    assert len(world.asked) == 1
    world.clock.advance(PACE_S)
    await world.status.note()
    assert len(world.asked) == 2
    silent = World(b'{"status": {}, "CommitTS": 1}')
    for _ in range(3):
        await silent.status.note()
        silent.clock.advance(PACE_S)
    assert len(silent.asked) == 1
    silent.clock.advance(SILENT_S)
    await silent.status.note()
    assert len(silent.asked) == 2


async def test_nobody_is_asked_while_the_stream_is_current() -> None:
    world = World(pump_page(watermark_behind_s=0))
    world.applier.resolved_ts = ts(0.5)
    await world.status.note()
    assert world.asked == []


async def test_an_old_word_is_not_believed() -> None:
    world = World(pump_page(watermark_behind_s=70, start_ts=4242))
    await world.status.note()
    world.clock.advance(4 * PACE_S)
    assert world.status.document()["Lag"]["start_ts"] is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"pump": {}}', b'{"pump": {"oldest": [{}]}}', b"\xff"])
def test_pages_of_others_are_no_word(body: bytes) -> None:
    assert read_status(body, 0.0) is None


async def test_what_operators_do_is_the_reason_and_shows() -> None:
    world = World()
    world.control.pause()
    document = world.status.document()
    assert document["Control"]["paused"] is True
    assert "paused by an operator" in document["Lag"]["reason"]


async def test_rates_eta_and_gauges() -> None:
    world = World()
    world.status.bind_gauges()
    for second in range(1, 11):
        world.clock.advance(1.0)
        world.applier.rows += 500
        world.applier.transactions += 5
        world.applier.resolved_ts = ts(90 - 3 * second)
        await world.status.note()
    lag = world.status.document()["Lag"]
    assert (lag["rows_per_s"], lag["transactions_per_s"], lag["speed"]) == (500.0, 5.0, 3.0)
    assert lag["total_s"] == pytest.approx(70, abs=0.01)
    assert lag["eta_s"] == pytest.approx(35, abs=0.1)
    shown = metrics.exposition().decode()
    assert "binlog_drainer_lag_eta_seconds 35" in shown or "binlog_drainer_lag_eta_seconds 34.99" in shown
    assert 'binlog_drainer_lag_seconds{stage="queue"}' in shown
    assert 'binlog_drainer_queue_size{name="syncer_input"} 3.0' in shown
    world.applier.resolved_ts = ts(60)
    for _ in range(40):
        world.clock.advance(1.0)
        await world.status.note()
    assert world.status.document()["Lag"]["eta_s"] is None
    assert "binlog_drainer_lag_eta_seconds +Inf" in metrics.exposition().decode()


def test_a_stream_from_the_very_beginning_is_behind_since_it_began() -> None:
    """And not since 1970, where nothing came yet."""
    world = World()
    world.applier.resolved_ts = world.applier.handed_over_ts = 0
    world.collector.places = {}
    behind = []
    for _ in range(3):
        behind.append(world.status.document()["Lag"]["total_s"])
        world.clock.advance(7.0)
    assert behind == [0.0, 7.0, 14.0]


async def test_there_is_no_speed_while_nothing_can_be_written() -> None:
    """What went before is in the mean still; a lane that waits beside one that works is no standstill."""
    world = World()
    for _ in range(10):
        world.clock.advance(1.0)
        world.applier.rows += 500
        await world.status.note()

    def shown() -> tuple[float, float | None, str]:
        document = world.status.document()
        return document["Lag"]["rows_per_s"], document["HeldUpS"], document["HeldUp"]

    assert shown() == (500.0, 0.0, "")
    waits = LaneStatus(lane=1, queued_bytes=9, waiting_for="gone", trouble="is away", waiting_s=3.0)
    world.applier.lanes = [LaneStatus(queued_bytes=9), waits]
    assert shown() == (500.0, 3.0, "lane 1: gone")
    world.applier.lanes = [LaneStatus(), waits]
    assert shown() == (0.0, 3.0, "lane 1: gone")
    assert world.status.view().rates.rows == 0.0
    world.applier.lanes, world.applier.held_up = [], "the disk is full"
    assert shown() == (0.0, 0.0, "the disk is full")
    for _ in range(2):
        await world.status.note()
        world.clock.advance(6.0)
    assert shown() == (0.0, 12.0, "the disk is full")
    assert "the downstream: the disk is full" in world.status.document()["Lag"]["reason"]
    world.applier.held_up = ""
    await world.status.note()
    assert shown()[1:] == (0.0, "")
    world.control.pause()
    assert shown()[0] == 0.0


async def test_synced_follows_the_last_transaction() -> None:
    world = World()
    world.clock.advance(301.0)
    assert world.status.document()["Synced"] is True
    world.applier.transactions += 1
    await world.status.note()
    assert world.status.document()["Synced"] is False


async def test_a_standbys_page_has_the_same_first_keys_and_gives_way() -> None:
    world = World()

    async def nothing() -> None: ...

    standby = Standby(None, "d", world.clock, nothing)  # type: ignore[arg-type]
    shown = Shown(StandbyStatus(standby, "d"))
    document = shown.document()
    assert list(document)[:4] == ["PumpPos", "Synced", "LastTS", "TsMap"]
    assert document["State"] == "standby"
    shown.source = world.status
    assert shown.document()["State"] == node.ONLINE
    assert shown.stored_ts == ts(100)


# -- the progress line ------------------------------------------------------------------------------------


def test_a_line_is_due_while_behind_and_one_at_the_end() -> None:
    cadence = Cadence(10.0)
    said = [cadence.observe(lag_s, second) for second, lag_s in enumerate([1.0, BEHIND_S, 50, 50])]
    assert said == [(False, False), (True, False), (False, False), (False, False)]
    assert cadence.observe(50, 11.0) == (True, False)
    assert cadence.observe(CURRENT_S, 12.0) == (False, False), "not caught up before it is current"
    assert cadence.observe(CURRENT_S - 0.1, 13.0) == (False, True)
    assert cadence.observe(CURRENT_S - 0.1, 14.0) == (False, False)
    assert cadence.observe(CURRENT_S + 1, 15.0) == (False, False), "a little lag is no news"


async def test_the_line_says_where_how_far_how_fast_and_when() -> None:
    world = World()
    for second in range(1, 11):
        world.clock.advance(1.0)
        world.applier.rows += 50_000
        world.applier.resolved_ts = ts(7300 - 3 * second)
        await world.status.note()
    line = text(world.status.view())
    for words in ("applied", "2.0 h behind", "50,000 rows/s", "caught up: 61 min"):
        assert words in line
    world.control.pause()
    assert "0 rows/s, caught up: never at this rate; paused by" in text(world.status.view())
