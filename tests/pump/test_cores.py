"""Small cores of the pump: admission, group commit, recovery, resolve schedule, pull session."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from common import binlog
from common.binlog import COMMIT, PREWRITE, ROLLBACK
from common.cluster import node
from common.errors import Corruption
from pump.index.sorter import OpenPrewrite
from pump.log import recovery, value_pointer
from pump.log.delivery import Delivery, Page
from pump.log.group_commit import GroupCommit
from pump.log.recovery import Cut, FoundSegment, Plan, Tear
from pump.log.recovery import Refuse as RefuseStart
from pump.log.value_pointer import START, ValuePointer
from pump.pull.session import FIRST_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX, Message, PullSession
from pump.watermark.resolve_schedule import Answer, Heard, ResolveSchedule
from pump.write import admission
from pump.write.admission import PROBE, STORE, Disk, Reason, Refuse

ROOM = Disk(available=100, floor=10)
FULL = Disk(available=10, floor=10)


class TestAdmission:
    def test_other_cluster_is_refused_with_the_known_text(self) -> None:
        assert admission.cluster(1, 1) is None
        assert admission.cluster(2, 1) == Refuse(Reason.CLUSTER, "cluster ID are mismatch, 2 vs 1")

    def test_whole_product(self) -> None:
        for state, disk, tp, start_ts, commit_ts in itertools.product(
            node.STATES, (ROOM, FULL), (PREWRITE, COMMIT, ROLLBACK), (0, 5), (0, 5, 7)
        ):
            verdict = admission.admit((tp, start_ts, commit_ts), 1, state, disk)
            if tp == PREWRITE and state != node.ONLINE:
                assert verdict == Refuse(Reason.STATE, f"no online: {state}")
            elif tp == PREWRITE and disk is FULL:
                text = "no available space, available: 10, StopWriteAtAvailableSpace: 10"
                assert verdict == Refuse(Reason.DISK, text)
            elif start_ts == commit_ts == 0:
                assert verdict == PROBE
            else:
                assert verdict == STORE
            all_stored = admission.takes_all(1, state, disk)
            assert not all_stored or verdict in (STORE, PROBE)

    def test_ends_have_a_reserve_and_the_last_of_it_is_nobodys(self) -> None:
        for floor, available in itertools.product((0, 1, 15, 16, 160), range(200)):
            disk = Disk(available, floor)
            for head in ((COMMIT, 5, 7), (ROLLBACK, 5, 0), (ROLLBACK, 0, 0)):
                refused = isinstance(admission.admit(head, 1, node.CLOSING, disk), Refuse)
                assert refused == (available <= floor / 16 if floor >= 16 else available == 0)

    def test_only_what_never_fits_is_refused_by_size(self) -> None:
        largest = admission.PAYLOAD_BYTES_MAX
        assert admission.admit((COMMIT, 5, 7), largest, node.ONLINE, ROOM) == STORE
        verdict = admission.admit((COMMIT, 5, 7), largest + 1, node.ONLINE, ROOM)
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.SIZE
        assert not admission.takes_all(largest + 1, node.ONLINE, ROOM)


class TestGroupCommit:
    def test_cuts_a_list_as_groups_take_it(self) -> None:
        group_commit = GroupCommit(bytes_max=5, records_max=3)
        for sizes in itertools.product((0, 1, 2, 5, 9), repeat=5):
            left, parts = list(sizes), []
            while left:
                count = group_commit.take(left)
                parts.append(left[:count])
                del left[:count]
            assert [list(sizes[first:behind]) for first, behind in group_commit.cut(list(sizes))] == parts
        assert list(group_commit.cut([])) == []

    def test_takes_what_fits_and_at_least_one(self) -> None:
        for sizes in itertools.product((0, 1, 2, 5, 9), repeat=4):
            taken = GroupCommit(bytes_max=5, records_max=3).take(iter(sizes))
            allowed = [
                count for count in range(1, 5) if count == 1 or (sum(sizes[:count]) <= 5 and count <= 3)
            ]
            # Every shorter prefix fits as well, so the longest allowed one is right.
            assert taken == max(allowed)
        assert GroupCommit(bytes_max=5, records_max=3).take(iter(())) == 0


def test_value_pointer_bytes_and_order() -> None:
    assert value_pointer.encode(ValuePointer(1, 16)).hex() == "010000001000000000000000"
    assert value_pointer.decode(bytes.fromhex("010000001000000000000000")) == ValuePointer(1, 16)
    assert ValuePointer(1, 16) < ValuePointer(1, 17) < ValuePointer(2, 0)
    for wrong in (b"", bytes(11), b"\0" * 4 + b"\xff" * 8):
        with pytest.raises(Corruption):
            value_pointer.decode(wrong)


class TestRecoveryPlan:
    SEGMENTS = (FoundSegment(3, 1000), FoundSegment(4, 1000), FoundSegment(5, 500))

    @pytest.mark.parametrize(
        ("head", "handle", "expected"),
        [
            (START, START, Plan(ValuePointer(5, 0), ValuePointer(3, 0))),
            (ValuePointer(5, 100), ValuePointer(5, 50), Plan(ValuePointer(5, 100), ValuePointer(5, 50))),
            (ValuePointer(5, 100), ValuePointer(4, 50), Plan(ValuePointer(5, 100), ValuePointer(4, 50))),
            (ValuePointer(4, 100), ValuePointer(4, 200), Plan(ValuePointer(5, 0), ValuePointer(4, 100))),
            # Never before the first file that is left.
            (ValuePointer(5, 100), ValuePointer(1, 50), Plan(ValuePointer(5, 100), ValuePointer(3, 0))),
        ],
    )
    def test_positions(self, head: ValuePointer, handle: ValuePointer, expected: Plan) -> None:
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
            (0, 100), (None, 150, 5000), (0, 50, 200), (False, True), (False, True)
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


def open_at(*since: float) -> list[OpenPrewrite]:
    return [OpenPrewrite(number, START, since_s, START) for number, since_s in enumerate(since, 1)]


class TestResolveSchedule:
    def ask(
        self, schedule: ResolveSchedule, prewrites: Sequence[OpenPrewrite], now_s: float, waits: bool
    ) -> list[int]:
        return [entry.start_ts for entry in schedule.due(prewrites, now_s, somebody_waits=waits)]

    def test_first_question_depends_on_who_waits(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        prewrites = open_at(10.0, 10.5)
        assert self.ask(schedule, prewrites, 10.09, True) == []
        assert self.ask(schedule, prewrites, 10.99, False) == []
        assert self.ask(schedule, prewrites, 10.11, True) == [1]
        assert self.ask(schedule, prewrites, 11.01, False) == []  # under way
        assert self.ask(schedule, prewrites, 11.51, False) == [2]

    def test_what_the_sorter_has_not_read_is_waited_for(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        prewrites = open_at(10.0)
        for behind_s in (1.0, 5.0):
            now_s = 10.0 + behind_s
            assert schedule.due(prewrites, now_s, somebody_waits=True, behind_s=behind_s) == []
        assert schedule.due(prewrites, 15.2, somebody_waits=True, behind_s=5.0) == prewrites

    def test_the_longest_due_come_first_so_that_all_get_their_turn(self) -> None:
        schedule = ResolveSchedule(waited_after_s=1.0, pause_max_s=4.0)
        prewrites, now_s, turns = open_at(*([0.0] * 50)), 1.0, dict.fromkeys(range(1, 51), 0)
        for _ in range(200):  # one at a time, and nothing is ever learned
            for entry in schedule.due(prewrites, now_s, somebody_waits=True, at_most=1):
                turns[entry.start_ts] += 1
                schedule.undecided(entry.start_ts, now_s, Answer.UNAVAILABLE)
            now_s += 1.0
        assert set(turns.values()) == {4}

    def test_an_end_that_is_stored_is_not_asked_about_again(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        assert self.ask(schedule, open_at(0.0), 1.0, True) == [1]
        schedule.ended(1, 1.0, "committed")
        assert self.ask(schedule, open_at(0.0), 1e9, True) == []
        assert schedule.heard(1) == Heard(1, Answer.ENDED, "committed", 1.0)

    def test_what_was_heard_keeps_since_when(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        assert schedule.heard(1) == Heard()
        for now_s, answer in ((1.0, Answer.ALIVE), (2.0, Answer.ALIVE), (3.0, Answer.UNAVAILABLE)):
            schedule.undecided(1, now_s, answer, "so")
        assert schedule.heard(1) == Heard(3, Answer.UNAVAILABLE, "so", 3.0)
        schedule.undecided(1, 4.0, Answer.UNAVAILABLE, "or so")
        assert schedule.heard(1) == Heard(4, Answer.UNAVAILABLE, "or so", 3.0)

    def test_pauses_grow_to_the_limit(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1, pause_max_s=5.0)
        prewrites, now_s, asked_at = open_at(0.0), 0.0, []
        while now_s < 30:
            if self.ask(schedule, prewrites, now_s, True):
                asked_at.append(now_s)
                schedule.undecided(1, now_s, Answer.UNAVAILABLE)
            now_s = round(now_s + 0.01, 2)
        pauses = [round(after - before, 2) for before, after in itertools.pairwise(asked_at)]
        assert pauses[:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
        assert max(pauses) == 5.0

    def test_upstream_says_when_to_ask_again(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1, pause_max_s=5.0)
        schedule.undecided(1, 10.0, Answer.ALIVE, retry_after_s=0.7)
        assert self.ask(schedule, open_at(0.0), 10.69, True) == []
        assert self.ask(schedule, open_at(0.0), 10.71, True) == [1]
        schedule.undecided(1, 10.0, Answer.ALIVE, retry_after_s=3600.0)
        assert self.ask(schedule, open_at(0.0), 15.01, True) == [1]

    def test_never_gives_one_up(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        assert self.ask(schedule, open_at(0.0), 1e9, False) == [1]

    def test_batches_are_bounded_and_memory_too(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1, batch_max=10)
        prewrites = open_at(*([0.0] * 25))
        first = self.ask(schedule, prewrites, 1.0, True)
        assert len(first) == 10
        for start_ts in first:
            schedule.undecided(start_ts, 1.0, Answer.UNAVAILABLE)
        assert self.ask(schedule, prewrites, 1.0, True) == list(range(11, 21))
        schedule.drop(lambda start_ts: start_ts == 3)
        assert set(schedule._asked) == {3}
        schedule.drop(lambda _: False)
        assert schedule._asked == {}


def deliveries(*commits: int, size: int = 10) -> list[Delivery]:
    return [Delivery(commit_ts, commit_ts - 1, bytes(size)) for commit_ts in commits]


class TestPullSession:
    def test_page_becomes_one_message_with_its_watermark(self) -> None:
        session = PullSession(5)
        session.request(100, 0)
        assert session.page(Page(deliveries(7, 9), 12)) == Message(deliveries(7, 9), 20, 12)
        assert session.position == 12
        assert session.credit == 80

    def test_nothing_is_said_without_need(self) -> None:
        session = PullSession(5)
        session.request(100, 0)
        assert session.page(Page([], 12)) is None
        assert session.page(Page([Delivery(20, 20, binlog.fake(20))], 30)) is None
        assert session.position == 30

    def test_awaited_watermark_is_told_once(self) -> None:
        session = PullSession(5)
        session.request(0, 10)
        assert session.told() is None
        assert session.waits_for == 10
        session.request(100, 0)
        assert session.page(Page([], 12)) == Message([], 0, 12)
        assert session.told() is None
        session.request(0, 11)
        assert session.told() == Message([], 0, 12)
        session.request(0, 15)
        assert session.page(Page(deliveries(14), 16)) == Message(deliveries(14), 10, 16)
        assert session.told() is None

    def test_time_marks_of_old_pumps_are_no_payloads(self) -> None:
        session = PullSession(0)
        session.request(100, 0)
        page = Page([*deliveries(3), Delivery(4, 4, binlog.fake(4))], 4)
        assert session.page(page) == Message(deliveries(3), 10, 4)

    def test_credit_bounds_pages_and_one_large_transaction_passes(self) -> None:
        session = PullSession(0)
        assert session.page_bytes == 0
        session.request(50, 0)
        assert session.page_bytes == 50
        session.page(Page(deliveries(3, size=500), 3))
        assert session.credit == -450
        assert session.page_bytes == 0
        session.request(451, 0)
        assert session.page_bytes == 1
        session.request(10 << 20, 0)
        assert session.page_bytes < MESSAGE_BYTES_MAX
        for ts in range(10, 20):
            session.page(Page(deliveries(ts), ts))
        assert session.page_bytes == MESSAGE_BYTES_MAX

    def test_the_first_message_is_small_and_later_ones_grow(self) -> None:
        session = PullSession(0)
        session.request(10 << 20, 0)
        sizes = []
        for ts in range(2, 9):
            sizes.append(session.page_bytes)
            session.page(Page(deliveries(ts), ts))
        assert sizes[0] == FIRST_MESSAGE_BYTES_MAX <= 16 << 10
        assert sizes == sorted(sizes)
        assert sizes[-1] == MESSAGE_BYTES_MAX

    def test_a_commit_at_or_below_the_told_watermark_is_caught(self) -> None:
        session = PullSession(10)
        session.request(100, 0)
        with pytest.raises(AssertionError, match="at or below the told watermark"):
            session.page(Page(deliveries(10), 11))

    def test_a_watermark_never_falls(self) -> None:
        session = PullSession(10)
        with pytest.raises(AssertionError):
            session.page(Page([], 9))
