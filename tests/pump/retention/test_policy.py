"""Retention policy: what goes and who is warned, against a naive reading of the same rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pump.config import ENV_PREFIX, PumpConfig
from pump.index.sorter import Sorter
from pump.log.record import START, LogRecord, ValuePointer
from pump.log.value_log import ClosedFile
from pump.retention.policy import (
    DISK,
    DRAINERS,
    Alarms,
    DrainerState,
    Outlook,
    Policy,
    PurgePlan,
    PurgeReason,
    Situation,
    Straddlers,
    Survey,
    candidates,
    decide,
    outlook,
)
from tidb_binlog.binlog import COMMIT, PREWRITE, ROLLBACK
from tidb_binlog.cluster import node
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError
from tidb_binlog.tso import TS_MAX

MINUTE = 60_000 << 18
HOUR = 60 * MINUTE
MARGIN = 10 * MINUTE
FILE_BYTES = 100


def log_of(records: Sequence[tuple[int, int, int]], cuts: Sequence[int]) -> list[list[LogRecord]]:
    """Records as (type, start_ts, commit_ts), cut into files in front of these positions."""
    files: list[list[LogRecord]] = [[] for _ in range(len(cuts) + 1)]
    for at, (tp, start_ts, commit_ts) in enumerate(records):
        fid = sum(cut <= at for cut in cuts)
        files[fid].append(LogRecord(tp, start_ts, commit_ts, ValuePointer(fid, at)))
    return files


def surveys_of(files: Sequence[Sequence[LogRecord]]) -> list[Survey]:
    surveys: list[Survey] = []
    for fid, records in enumerate(files):
        survey = Survey(fid, max((earlier.max_ts for earlier in surveys), default=0))
        for record in records:
            survey.feed([record])
        survey.finish()
        surveys.append(survey)
    return surveys


def purge_of(policy: Policy, now: Situation, files: Sequence[Sequence[LogRecord]]) -> PurgePlan | None:
    """What the shell does: choose, walk, choose again, follow the ends, decide."""
    surveys = surveys_of(files)
    count = len(candidates(policy, now))
    walked = [replace(file, max_ts=surveys[file.fid].max_ts) for file in now.files]
    found = candidates(policy, replace(now, files=walked))[:count]
    straddlers = Straddlers()
    for survey in surveys[: len(found)]:
        straddlers.feed(survey)
    for survey in surveys[len(found) :]:
        straddlers.take(survey)
    return decide(found, straddlers.straddlers, now.gc_ts)


def settled_by(files: Sequence[Sequence[LogRecord]], ended_elsewhere: Sequence[int] = ()) -> tuple[int, int]:
    """(file of the settled place, watermark) that the sorter arrives at."""
    sorter = Sorter()
    for record in (record for records in files for record in records):
        sorter.feed([record], 0.0)
        sorter.mark(record.commit_ts)
    for start_ts in ended_elsewhere:
        sorter.feed([LogRecord(ROLLBACK, start_ts, 0, sorter.decided)], 0.0)
    return sorter.decided.fid, sorter.watermark


def naive(policy: Policy, now: Situation, files: Sequence[Sequence[LogRecord]]) -> tuple[int, int] | None:
    """(files that go, purged timestamp): every prefix is tried, the longest that the rules allow wins."""
    live = [
        drainer
        for drainer in now.drainers or ()
        if drainer.state != "offline"
        and (drainer.alive or now.now_ts - drainer.update_ts < HOUR)
        and not 0 < drainer.checkpoint < now.gc_ts
    ]
    free = min([now.watermark - 1] + [drainer.checkpoint - MARGIN for drainer in live])
    if now.drainers is None:
        free = -1
    in_need = now.watermark - 1 if policy.protects == DISK else free
    aged = now.now_ts - (int(policy.age_s) * 1000 << 18)
    commits = {
        record.start_ts: record.commit_ts for records in files for record in records if record.tp == COMMIT
    }
    best = None
    for count in range(1, len(now.files) + 1):
        ceiling, gone = -1, now.gc_ts
        for fid in range(count):
            newest = max((record.index_ts for record in files[fid]), default=0)
            rest = now.active_bytes + sum(file.size for file in now.files[fid:])
            short = now.free_bytes + sum(file.size for file in now.files[:fid]) < policy.free_bytes_min
            if fid >= now.settled_fid:
                break
            if newest <= now.gc_ts:
                ceiling = max(ceiling, now.gc_ts)
            elif newest <= aged - MARGIN and newest <= free:
                ceiling = max(ceiling, min(aged, free))
            elif policy.bytes_max and rest > policy.bytes_max and newest <= free:
                ceiling = max(ceiling, min(newest + MARGIN, free))
            elif short and newest <= in_need:
                ceiling = max(ceiling, min(newest + MARGIN, in_need))
            else:
                break
            gone = max(gone, newest)
            for record in files[fid]:
                if record.tp == PREWRITE:
                    gone = max(gone, commits.get(record.start_ts, 0))
        else:
            if gone <= ceiling:
                best = count, gone
    return best


def situation(logs: Sequence[Sequence[LogRecord]], **more: object) -> Situation:
    settled_fid, watermark = settled_by(logs)
    closed = [
        ClosedFile(fid, FILE_BYTES, max((record.index_ts for record in records), default=0))
        for fid, records in enumerate(logs[:-1])
    ]
    facts: dict[str, object] = {
        "now_ts": 2 * HOUR,
        "files": closed,
        "active_bytes": 0,
        "free_bytes": 0,
        "settled_fid": settled_fid,
        "watermark": watermark,
        "gc_ts": 0,
        "drainers": [],
    }
    return Situation(**(facts | more))  # type: ignore[arg-type]


def drainer(checkpoint: int, **more: object) -> DrainerState:
    facts: dict[str, object] = {
        "node_id": "d",
        "state": node.ONLINE,
        "alive": True,
        "checkpoint": checkpoint,
        "update_ts": 2 * HOUR,
    }
    return DrainerState(**(facts | more))  # type: ignore[arg-type]


POLICIES = [
    (Policy(3600.0), 90 * MINUTE),
    (Policy(3600.0, protects=DRAINERS), 200 * MINUTE),
    (Policy(1e6, bytes_max=FILE_BYTES), 100 * MINUTE),
    (Policy(1e6, free_bytes_min=2 * FILE_BYTES), 100 * MINUTE),
    (Policy(3600.0, FILE_BYTES, FILE_BYTES, DRAINERS), 80 * MINUTE),
]


def interleavings() -> Iterator[list[tuple[int, int, int]]]:
    """Three transactions in every order of their six records, six minutes apart."""
    for order in sorted(set(itertools.permutations((0, 0, 1, 1, 2, 2)))):
        started: dict[int, int] = {}
        records = []
        for at, number in enumerate(order):
            ts = (at + 1) * 6 * MINUTE
            if number in started:
                records.append((COMMIT, started[number], ts))
            else:
                started[number] = ts
                records.append((PREWRITE, ts, 0))
        yield records


def test_every_order_every_cut_every_limit_goes_as_far_as_the_rules_allow_and_leaves_nothing_cut() -> None:
    gone = kept_for_straddlers = 0
    checkpoints = itertools.cycle([None, 0, 24 * MINUTE, 33 * MINUTE, 40 * MINUTE, 200 * MINUTE])
    for records in interleavings():
        for cuts in itertools.combinations_with_replacement(range(1, 7), 3):
            files = log_of(records, cuts)
            for policy, now_ts in POLICIES:
                checkpoint = next(checkpoints)
                drainers = [] if checkpoint is None else [drainer(checkpoint, update_ts=now_ts)]
                now = situation(files, now_ts=now_ts, drainers=drainers)
                purge = purge_of(policy, now, files)
                expected = naive(policy, now, files)
                assert (None if purge is None else (purge.upto_fid + 1, purge.ts)) == expected
                kept_for_straddlers += len(candidates(policy, now)) > (expected[0] if expected else 0)
                if purge is None:
                    continue
                gone += 1
                assert purge.ts < now.watermark
                left = [record for file in files[purge.upto_fid + 1 :] for record in file]
                for tp, start_ts, commit_ts in records:
                    if tp == COMMIT and commit_ts > purge.ts:
                        assert {record.tp for record in left if record.start_ts == start_ts} == {
                            PREWRITE,
                            COMMIT,
                        }
    assert gone > 3000
    assert kept_for_straddlers > 100


def test_repeated_and_swapped_records_never_leave_a_commit_without_its_prewrite() -> None:
    """Clients repeat writes, and a prewrite may come behind its commit: every log of five such records."""
    first = (10 * MINUTE, 20 * MINUTE)
    second = (12 * MINUTE, 70 * MINUTE)
    kinds = [
        (PREWRITE, first[0], 0),
        (COMMIT, *first),
        (PREWRITE, second[0], 0),
        (COMMIT, *second),
        (ROLLBACK, second[0], 0),
    ]
    end = [(PREWRITE, 90 * MINUTE, 0), (COMMIT, 90 * MINUTE, 91 * MINUTE)]
    policy = Policy(3600.0)
    gone = 0
    for records in itertools.product(kinds, repeat=5):
        present = set(records)
        if kinds[3] in present and kinds[4] in present:
            continue  # it either commits or not
        ends = {record[1] for record in records if record[0] != PREWRITE}
        orphans = [start_ts for start_ts in (first[0], second[0]) if start_ts not in ends]
        for cuts in itertools.combinations(range(1, 6), 2):
            files = log_of([*records, *end], cuts)
            # A Go pump settled those whose outcome it did not store.
            settled_fid, watermark = settled_by(files, orphans)
            now = situation(files, now_ts=125 * MINUTE, settled_fid=settled_fid, watermark=watermark)
            purge = purge_of(policy, now, files)
            if purge is None:
                continue
            gone += 1
            index: dict[int, int] = {}  # of what comes twice it has the first
            for record in itertools.chain.from_iterable(files):
                index.setdefault(record.index_ts, record.place.fid)
            for start_ts, commit_ts in (first, second):
                if commit_ts in index and commit_ts > purge.ts and start_ts in index:
                    assert index[start_ts] > purge.upto_fid, (records, cuts, purge)
                    assert index[commit_ts] > purge.upto_fid
    assert gone > 500


def test_a_long_transaction_keeps_the_file_of_its_prewrite_until_its_commit_is_old_too() -> None:
    records = [
        (PREWRITE, 10 * MINUTE, 0),
        (PREWRITE, 11 * MINUTE, 0),
        (COMMIT, 11 * MINUTE, 12 * MINUTE),
        (PREWRITE, 13 * MINUTE, 0),
        (COMMIT, 13 * MINUTE, 14 * MINUTE),
        (COMMIT, 10 * MINUTE, 80 * MINUTE),
        (PREWRITE, 81 * MINUTE, 0),
        (COMMIT, 81 * MINUTE, 82 * MINUTE),
    ]
    files = log_of(records, [3, 5])
    young = situation(files, now_ts=120 * MINUTE)
    assert len(candidates(Policy(3600.0), young)) == 2
    assert purge_of(Policy(3600.0), young, files) is None
    old = situation(files, now_ts=140 * MINUTE)
    assert purge_of(Policy(3600.0), old, files) == PurgePlan(
        1, 80 * MINUTE, 2 * FILE_BYTES, (PurgeReason.AGE,)
    )
    passed = replace(old, gc_ts=30 * MINUTE)  # by a purge that died before it removed files
    assert purge_of(Policy(3600.0), passed, files) == PurgePlan(
        1, 80 * MINUTE, 2 * FILE_BYTES, (PurgeReason.PURGED,)
    )
    assert purge_of(Policy(3600.0), replace(passed, now_ts=120 * MINUTE), files) is None


def closed(*max_minutes: int | None) -> list[ClosedFile]:
    return [
        ClosedFile(fid, FILE_BYTES, None if minutes is None else minutes * MINUTE)
        for fid, minutes in enumerate(max_minutes)
    ]


def now_with(files: list[ClosedFile], **more: object) -> Situation:
    facts: dict[str, object] = {"files": files, "settled_fid": 99, "watermark": TS_MAX}
    return situation([[]], **(facts | more))


def chosen(policy: Policy, now: Situation) -> list[tuple[int, PurgeReason]]:
    return [(one.file.fid, one.reason) for one in candidates(policy, now)]


def test_each_limit_takes_the_oldest_and_no_more_than_it_must() -> None:
    now = now_with(closed(10, 30, 50, 70), active_bytes=50, free_bytes=250)
    assert chosen(Policy(3600.0), now) == [(0, PurgeReason.AGE), (1, PurgeReason.AGE), (2, PurgeReason.AGE)]
    assert chosen(Policy(1e6, bytes_max=249), now) == [
        (0, PurgeReason.BYTES),
        (1, PurgeReason.BYTES),
        (2, PurgeReason.BYTES),
    ]
    assert chosen(Policy(1e6, bytes_max=250), now) == [(0, PurgeReason.BYTES), (1, PurgeReason.BYTES)]
    assert chosen(Policy(1e6, free_bytes_min=350), now) == [(0, PurgeReason.SPACE)]
    assert chosen(Policy(1e6, free_bytes_min=250), now) == []
    assert chosen(Policy(1e6), replace(now, gc_ts=30 * MINUTE)) == [
        (0, PurgeReason.PURGED),
        (1, PurgeReason.PURGED),
    ]


def test_what_is_not_settled_and_what_reaches_the_watermark_stays_whatever_the_disk_does() -> None:
    policy = Policy(1.0, 1, 1 << 40)
    files = closed(10, 30, 50, 70)
    assert len(chosen(policy, now_with(files))) == 4
    assert len(chosen(policy, now_with(files, settled_fid=2))) == 2
    assert len(chosen(policy, now_with(files, watermark=50 * MINUTE))) == 2
    assert len(chosen(policy, now_with(files, watermark=50 * MINUTE + 1))) == 3
    assert all(
        one.ceiling < 31 * MINUTE for one in candidates(policy, now_with(files, watermark=31 * MINUTE))
    )


def test_a_file_without_a_footer_is_looked_at_before_it_is_judged() -> None:
    now = now_with(closed(10, None, 100))
    assert [fid for fid, _ in chosen(Policy(3600.0), now)] == [0, 1]


@pytest.mark.parametrize(
    ("one", "holds"),
    [
        (drainer(20 * MINUTE), True),
        (drainer(20 * MINUTE, state=node.PAUSED), True),
        (drainer(20 * MINUTE, state=node.OFFLINE), False),
        (drainer(20 * MINUTE, alive=None), True),
        (drainer(20 * MINUTE, alive=None, update_ts=61 * MINUTE), True),
        (drainer(20 * MINUTE, alive=None, update_ts=HOUR), False),  # a Go drainer that was paused or died
        (drainer(20 * MINUTE, alive=False), True),  # restarting
        (drainer(20 * MINUTE, alive=False, update_ts=HOUR), False),
        (drainer(20 * MINUTE, update_ts=0), True),  # its lease says enough
        (drainer(0), True),  # nobody knows yet what it needs
        (drainer(39 * MINUTE), True),  # it may start again a little below its checkpoint
        (drainer(40 * MINUTE), False),
    ],
)
def test_who_holds_data_back(one: DrainerState, holds: bool) -> None:
    files = closed(30)
    for policy in (Policy(3600.0), Policy(1e6, bytes_max=1), Policy(1e6, 0, 1 << 40, DRAINERS)):
        assert chosen(policy, now_with(files, drainers=[drainer(TS_MAX), one])) == (
            [] if holds else chosen(policy, now_with(files))
        )
    # With the disk before the drainers, lack of space takes it all the same.
    assert chosen(Policy(3600.0, 0, 1 << 40, DISK), now_with(files, drainers=[one]))


def test_an_unknown_registry_holds_everything_back_except_from_a_full_disk() -> None:
    now = now_with(closed(10, 30), drainers=None)
    assert chosen(Policy(1.0, 1), now) == []
    assert chosen(Policy(1.0, 1, 1 << 40, DRAINERS), now) == []
    assert chosen(Policy(1.0, 1, 1 << 40), now) == [(0, PurgeReason.SPACE), (1, PurgeReason.SPACE)]


@pytest.mark.parametrize(
    ("checkpoint", "lost"), [(0, False), (1, True), (25 * MINUTE - 1, True), (25 * MINUTE, False)]
)
def test_a_drainer_that_has_lost_already_holds_nothing(checkpoint: int, lost: bool) -> None:
    now = now_with(closed(10, 30), drainers=[drainer(checkpoint)], gc_ts=25 * MINUTE)
    assert chosen(Policy(3600.0), now) == [(0, PurgeReason.PURGED), (1, PurgeReason.AGE)][: 1 + lost]


def test_what_goes_without_a_record_moves_no_purged_timestamp() -> None:
    found = candidates(Policy(3600.0), now_with(closed(0)))
    assert decide(found, [], 0) == PurgePlan(0, 0, FILE_BYTES, (PurgeReason.PURGED,))


def test_a_walk_for_the_ends_of_what_goes_says_when_it_has_them_all() -> None:
    going, middle, last = surveys_of(
        log_of([(PREWRITE, 1, 0), (PREWRITE, 2, 0), (COMMIT, 1, 5), (PREWRITE, 6, 0), (COMMIT, 2, 7)], [2, 4])
    )
    assert going.min_ts == 1
    assert [survey.entries for survey in (going, middle, last)] == [2, 2, 1]
    straddlers = Straddlers()
    straddlers.feed(going)
    assert [straddlers.take(middle), straddlers.take(last)] == [False, True]


def prospects(policy: Policy, now: Situation) -> dict[str, Outlook]:
    return {one.drainer.node_id: one for one in outlook(policy, now)}


def test_the_alarm_comes_before_the_loss_and_says_how_long_before() -> None:
    week = Policy(7 * 86400.0)
    now_ts = 10 * 24 * HOUR
    seen = [
        drainer(now_ts, node_id="near", update_ts=now_ts),
        drainer(now_ts - 7 * 24 * HOUR + 20 * HOUR, node_id="slow", update_ts=now_ts),
        drainer(now_ts - 7 * 24 * HOUR + 19 * HOUR, node_id="late", update_ts=now_ts),
        drainer(now_ts - 8 * 24 * HOUR, node_id="held", update_ts=now_ts),
        drainer(now_ts - 9 * 24 * HOUR, node_id="lost", alive=None, update_ts=0),
        drainer(now_ts - 9 * 24 * HOUR, node_id="gone", state=node.OFFLINE),
        drainer(0, node_id="new"),
    ]
    found = prospects(week, now_with([], now_ts=now_ts, drainers=seen, gc_ts=now_ts - 9 * 24 * HOUR + 1))
    assert {name: (one.left_s / 3600, one.alarm, one.lost, one.live) for name, one in found.items()} == {
        "near": (168, False, False, True),
        "slow": (20, False, False, True),
        "late": (19, True, False, True),
        "held": (0, True, False, True),
        "lost": (0, True, True, False),
    }


def test_growth_of_half_a_second_is_a_rate() -> None:
    """A Pump that has just begun with large transactions fills its limit at once."""
    half_s = 500 << 18
    files = [ClosedFile(fid, FILE_BYTES, 2 * HOUR - half_s) for fid in range(2)]
    seen = prospects(Policy(1e6, bytes_max=FILE_BYTES * 3), now_with(files, drainers=[drainer(1)]))["d"]
    assert (seen.left_s, seen.reason) == (0.5, PurgeReason.BYTES)


def test_a_short_retention_does_not_alarm_about_a_drainer_that_is_up_to_date() -> None:
    now = now_with([], drainers=[drainer(2 * HOUR)])
    assert not prospects(Policy(4 * 3600.0), now)["d"].alarm
    behind = now_with([], now_ts=5 * HOUR, drainers=[drainer(3 * HOUR - MINUTE)])
    assert prospects(Policy(4 * 3600.0), behind)["d"].alarm


def test_the_time_that_bytes_and_space_leave_is_reckoned_from_the_growth() -> None:
    # 100 bytes every 20 minutes; the drainer has applied the first two of four files.
    now = now_with(
        closed(20, 40, 60, 80),
        now_ts=100 * MINUTE,
        active_bytes=100,
        free_bytes=300,
        drainers=[drainer(40 * MINUTE)],
    )
    by_bytes = prospects(Policy(1e6, bytes_max=600), now)["d"]
    assert (by_bytes.reason, round(by_bytes.left_s / 60)) == (PurgeReason.BYTES, 60)
    by_space = prospects(Policy(1e6, free_bytes_min=200), now)["d"]
    assert (by_space.reason, round(by_space.left_s / 60)) == (PurgeReason.SPACE, 60)
    # The alarm is at half of what the newest record has: 60 minutes, 50, and 40 with nothing spare.
    alarms = [
        prospects(policy, replace(now, free_bytes=free, drainers=[drainer(minutes * MINUTE)]))["d"].alarm
        for policy, free, minutes in itertools.product(
            (Policy(1e6, bytes_max=600), Policy(1e6, free_bytes_min=200)), (300, 100), (20, 40, 60)
        )
    ]
    assert alarms == [True, False, False] * 3 + [True, True, False]
    # What is said comes true: let it grow for as long, and the next file is the first that it needs.
    grown = replace(
        now, files=closed(20, 40, 60, 80, 100, 120, 140), now_ts=160 * MINUTE, free_bytes=0, drainers=[]
    )
    for policy in (Policy(1e6, bytes_max=600), Policy(1e6, free_bytes_min=200)):
        assert [fid for fid, _ in chosen(policy, grown)] == [0, 1]


@pytest.mark.parametrize(("files", "now_ts"), [((), 60), ((20,), 60), ((20, 40), 20), ((20, 40), 10)])
def test_without_growth_age_alone_is_reckoned(files: tuple[int, ...], now_ts: int) -> None:
    now = now_with(closed(*files), now_ts=now_ts * MINUTE, drainers=[drainer(1)])
    assert prospects(Policy(1e6, 1, 1), now)["d"].reason is PurgeReason.AGE


def test_an_alarm_is_told_at_its_beginning_every_hour_and_at_its_end() -> None:
    alarms: Alarms[str] = Alarms()
    assert alarms.update(["a"], 0.0) == (["a"], [])
    assert alarms.update(["a", "b"], 600.0) == (["b"], [])
    assert alarms.update(["a", "b"], 3599.0) == ([], [])
    assert alarms.update(["a", "b"], 3600.0) == (["a"], [])
    assert alarms.update(["b"], 4000.0) == ([], ["a"])
    assert alarms.update(["a", "b"], 4200.0) == (["a", "b"], [])
    assert alarms.update([], 4300.0) == ([], ["b", "a"])


def test_memory_of_a_survey_is_what_reaches_beyond_the_file() -> None:
    survey = Survey(0, 0)
    for number in range(1, 20_000):
        place = ValuePointer(0, number)
        survey.feed(
            [LogRecord(PREWRITE, 2 * number, 0, place), LogRecord(COMMIT, 2 * number, 2 * number + 1, place)]
        )
    survey.feed([LogRecord(COMMIT, 4, 5, START), LogRecord(PREWRITE, 400_000, 0, START)])
    survey.feed([LogRecord(PREWRITE, 39_000, 0, START), LogRecord(COMMIT, 39_000, 39_001, START)])  # repeated
    survey.feed([LogRecord(PREWRITE, 39_002, 0, START)])  # repeated behind its end
    survey.feed([LogRecord(ROLLBACK, 0, 0, START)])  # of an old pump, without a timestamp
    survey.finish()
    assert survey.entries == 1
    assert (survey.min_ts, survey.max_ts) == (2, 400_000)


def configured(path: Path, text: str) -> Policy:
    file = path / "pump.toml"
    file.write_text(text)
    argv = ["-config", str(file)]
    return loading.load(PumpConfig, argv, {}, program="pump", env_prefix=ENV_PREFIX).retention_policy


def test_the_policy_is_what_the_file_says(tmp_path: Path) -> None:
    assert configured(tmp_path, "") == Policy(7 * 86400.0, 0, 0, DISK, 20 * 3600.0)
    text = """gc = "12h"
[storage]
retention-bytes = "100 GiB"
retention-free-space = "12 GiB"
retention-protects = "drainers"
retention-alarm = "3h"
"""
    assert configured(tmp_path, text) == Policy(43200.0, 100 << 30, 12 << 30, DRAINERS, 10800.0)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('retention-protects = "nobody"', "retention-protects"),
        ('retention-free-space = "10 GiB"', "prewrites are refused at 10737418240 already"),
        ('retention-alarm = "-1h"', "retention-alarm"),
        ("retention-bytes = -1", "retention-bytes"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(tmp_path: Path, line: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        configured(tmp_path, f"[storage]\n{line}\n")
    assert caught.value.hint
