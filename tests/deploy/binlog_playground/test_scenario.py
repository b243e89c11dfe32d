"""Reading recordings, and the order in which several Pumps may have got them."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from random import Random

import pytest

from binlog_playground.arrival import AckedPrefix, Record, arrival_order
from binlog_playground.replay import untold_outcomes
from binlog_playground.run import RECORDED
from binlog_playground.scenario import Scenario, _contents, load
from tidb_binlog.binlog import COMMIT, PREWRITE, ROLLBACK
from tidb_binlog.errors import ConfigError
from tidb_binlog.upstream_port import Committed, RolledBack


def prewrite(start_ts: int) -> Record:
    return Record(PREWRITE, start_ts, 0, b"p%d" % start_ts)


def commit(start_ts: int, commit_ts: int) -> Record:
    return Record(COMMIT, start_ts, commit_ts, b"c%d" % start_ts)


def test_the_shipped_recording_is_whole() -> None:
    scenario = load(RECORDED)
    assert scenario.name == "basic"
    assert scenario.cluster_id == 7710435644538274660
    assert [len(records) for records in scenario.files] == [184]
    assert len(scenario.jobs) == 45
    assert {table.full_name: len(table.rows) for table in scenario.expected} == {
        "shop.customer": 7,
        "shop.orders": 23,
    }
    assert scenario.last_commit_ts > 470607646015881221


def test_what_is_wrong_with_a_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no written\*\.jsonl\.gz") as error:
        load(tmp_path)
    assert "expected.json.gz" in error.value.hint
    (tmp_path / "meta.json").write_text('{"cluster_id": "5"}')
    with gzip.open(tmp_path / "written.jsonl.gz", "wt") as file:
        file.write("{broken\n")
    with pytest.raises(ConfigError, match=r"expected_checksum\.json cannot be read"):
        load(tmp_path)
    (tmp_path / "expected_checksum.json").write_text('{"tables": {}}')
    with pytest.raises(ConfigError, match="line 1 is not JSON"):
        load(tmp_path)


def test_one_file_keeps_its_order() -> None:
    records = [prewrite(10), prewrite(5), commit(5, 20), commit(10, 15)]
    assert [arrival.record for arrival in arrival_order([records])] == records


def test_files_are_merged_by_the_largest_timestamp_seen_in_each() -> None:
    one = [prewrite(1), commit(1, 10), prewrite(3), commit(3, 12)]  # 3 arrived late: its key is 10
    two = [prewrite(2), prewrite(9), commit(2, 11), commit(9, 13)]
    order = arrival_order([one, two])
    assert [(a.pump, a.record.payload, a.clock_ts) for a in order] == [
        (0, b"p1", 1),
        (1, b"p2", 2),
        (1, b"p9", 9),
        (0, b"c1", 10),
        (0, b"p3", 10),
        (1, b"c2", 11),
        (0, b"c3", 12),
        (1, b"c9", 13),
    ]


def random_recordings(random: Random, pumps: int, transactions: int) -> list[list[Record]]:
    """What Pumps may record: a commit timestamp is drawn after the prewrite's acknowledgement."""
    ts = itertools.count(1)
    files: list[list[Record]] = [[] for _ in range(pumps)]
    open_: list[tuple[int, int, str, int]] = []
    begun = 0
    while begun < transactions or open_:
        if begun < transactions and random.random() < 0.4:
            open_.append((next(ts), random.randrange(pumps), "begun", 0))
            begun += 1
        if not open_:
            continue
        start_ts, pump, state, commit_ts = open_.pop(random.randrange(len(open_)))
        if state == "begun":
            files[pump].append(prewrite(start_ts))
            open_.append((start_ts, pump, "prewritten", 0))
        elif state == "prewritten":
            open_.append((start_ts, pump, "committed", next(ts)))
        else:
            files[pump].append(commit(start_ts, commit_ts))
    return files


@pytest.mark.parametrize("seed", range(20))
def test_no_commit_at_or_below_the_clock_has_its_prewrite_outside(seed: int) -> None:
    random = Random(seed)
    files = random_recordings(random, random.randint(1, 3), 40)
    order = arrival_order(files)
    commit_of = {a.record.start_ts: a.record.commit_ts for a in order if a.record.tp == COMMIT}
    acked = AckedPrefix(order)
    positions = list(range(len(order)))
    # Acknowledgements come in about the order of sending, a few places apart.
    positions.sort(key=lambda position: position + random.uniform(0, 8))
    stored: set[int] = set()
    for position in positions:
        record = order[position].record
        if record.tp == PREWRITE:
            stored.add(record.start_ts)
        acked.ack(position)
        for start_ts, commit_ts in commit_of.items():
            assert commit_ts > acked.clock_ts or start_ts in stored
    assert acked.complete
    assert acked.clock_ts == max(a.record.ts for a in order)


def test_the_clock_waits_for_a_gap() -> None:
    order = arrival_order([[prewrite(1), prewrite(2), commit(1, 3)]])
    acked = AckedPrefix(order)
    acked.ack(2)
    acked.ack(1)
    assert (acked.clock_ts, acked.complete) == (0, False)
    acked.ack(0)
    assert (acked.clock_ts, acked.complete) == (3, True)


def test_outcomes_of_open_prewrites_are_told_when_the_clock_has_come_there() -> None:
    files = [
        [prewrite(1), prewrite(2), prewrite(3), prewrite(4), commit(1, 9), Record(ROLLBACK, 2, 0, b"r2")]
    ]
    scenario = Scenario("s", 1, files, [], {3: None, 4: 12}, [])
    assert untold_outcomes(scenario) == [(12, 4, Committed(12)), (3 + (3000 << 18), 3, RolledBack())]
    assert scenario.last_commit_ts == 12
    assert scenario.first_ts == 1


def test_bytes_are_compared_by_their_digits_however_a_recording_writes_them() -> None:
    form = {"name": "v", "repr": "hex", "type": "varbinary(9)"}
    table = {"kind": "BASE TABLE", "columns": [form], "key": ["v"], "rows": [["2D3A"], [None]]}
    ((found,), left_out) = _contents({"m": {"tables": {"t": table}}})
    assert (found.rows, left_out) == ([("2d3a",), (None,)], [])
