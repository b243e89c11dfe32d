"""Recovery: the plan of a start, and what becomes of a tear."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pump.log import recovery
from pump.log.log_file import OsLogDirectory
from pump.log.record import START, ValuePointer
from pump.log.recovery import Cut, FoundSegment, RecoveryPlan, RefuseStart, Tear
from pump.log.value_log import ValueLog
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption
from tidb_binlog.record import VALUE_HEADER_SIZE


def planned(verify_from: tuple[int, int], replay_from: tuple[int, int]) -> RecoveryPlan:
    return RecoveryPlan(ValuePointer(*verify_from), ValuePointer(*replay_from))


class TestRecoveryPlan:
    SEGMENTS = (FoundSegment(3, 1000), FoundSegment(4, 1000), FoundSegment(5, 500))

    @pytest.mark.parametrize(
        ("head", "handle", "expected"),
        [
            (START, START, planned((5, 0), (3, 0))),
            (*[ValuePointer(5, 500 - VALUE_HEADER_SIZE)] * 2, planned(*[(5, 500 - VALUE_HEADER_SIZE)] * 2)),
            (
                ValuePointer(5, 100),
                ValuePointer(5, 50),
                planned((5, 100), (5, 50)),
            ),
            (
                ValuePointer(5, 100),
                ValuePointer(4, 50),
                planned((5, 100), (4, 50)),
            ),
            (
                ValuePointer(4, 100),
                ValuePointer(4, 200),
                RecoveryPlan(ValuePointer(5, 0), ValuePointer(4, 100)),
            ),
            # Never before the first file that is left.
            (
                ValuePointer(5, 100),
                ValuePointer(1, 50),
                RecoveryPlan(ValuePointer(5, 100), ValuePointer(3, 0)),
            ),
        ],
    )
    def test_positions(self, head: ValuePointer, handle: ValuePointer, expected: RecoveryPlan) -> None:
        assert recovery.plan(self.SEGMENTS, head, handle) == expected

    @pytest.mark.parametrize("pointer", [ValuePointer(5, 490), ValuePointer(6, 0)])
    def test_positions_behind_the_log_are_refused(self, pointer: ValuePointer) -> None:
        for head, handle in ((pointer, START), (START, pointer)):
            with pytest.raises(Corruption, match="the value log ends at") as caught:
                recovery.plan(self.SEGMENTS, head, handle)
            assert "remove the directory `kv`" in caught.value.hint

    def test_gap_is_refused(self) -> None:
        with pytest.raises(Corruption, match=r"000004\.vlog is missing"):
            recovery.plan((FoundSegment(3, 9), FoundSegment(5, 9)), START, START)

    def test_tear_table(self) -> None:
        for offset, later, acknowledged, accepted, pair in itertools.product(
            (0, 100), (None, 150, 1000, 5000), (0, 50, 200), (False, True), (False, True)
        ):
            tear = Tear(offset, 9000, "checksum mismatch", later, pair)
            verdict = recovery.judge_tear(
                tear, acknowledged_to=acknowledged, group_bytes_max=1000, loss_accepted=accepted
            )
            is_far = later is not None and later - offset > 1000
            if not accepted and (offset < acknowledged or is_far or pair):
                assert isinstance(verdict, RefuseStart)
                assert verdict.offset == offset
            else:
                assert verdict == Cut(offset, later is not None)
        torn = Tear(100, 9000, "checksum mismatch", None)
        assert recovery.judge_tear(torn, acknowledged_to=100, group_bytes_max=0) == Cut(100, False)
        assert recovery.judge_tear(torn, acknowledged_to=101, group_bytes_max=0) != Cut(100, False)


def test_a_file_that_lost_what_is_to_be_read_on_is_refused(tmp_path: Path) -> None:
    """It is not the newest, which alone may end early: what had been open there would be open no more."""
    log = ValueLog(OsLogDirectory(str(tmp_path)), group_bytes_max=4096, segment_bytes_max=100)
    log.open(START, START, 0)
    payloads = [binlog.prewrite(ts, b"k", bytes(60)) for ts in (1, 2, 3)]
    places: list[ValuePointer] = []
    for payload in payloads:
        places += log.append([payload])
        log.commit(places[-1:], len(payload), 1, sync=True)
    log.close(healthy=True)
    assert [place.fid for place in places] == [0, 0, 1]
    (tmp_path / "000000.vlog").write_bytes((tmp_path / "000000.vlog").read_bytes()[: places[1].offset - 10])

    def read_on(*accepted: tuple[str, int]) -> list[int]:
        log = ValueLog(
            OsLogDirectory(str(tmp_path)),
            group_bytes_max=4096,
            loss_accepted=lambda name, offset: (name, offset) in accepted,
        )
        log.open(places[2], places[1], 3)
        batches = list(log.record_batches(places[1], log.end))
        return [record.start_ts for records, _ in batches for record in records]

    end = places[1].offset - 10
    with pytest.raises(Corruption, match=rf"000000\.vlog: offset {end}: the file ends early"):
        read_on()
    assert read_on(("000000.vlog", end)) == [3]
