"""Admission: the whole product of states, disks and binlogs."""

from __future__ import annotations

import itertools

import pytest

from pump.index.sorter import Prewrites
from pump.write import admission
from pump.write.admission import PROBE, STORE, Disk, Reason, Refuse
from tidb_binlog.binlog import COMMIT, KEY_BYTES_MAX, PREWRITE, ROLLBACK
from tidb_binlog.cluster import node

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
            elif start_ts == 0:
                assert isinstance(verdict, Refuse)
                assert verdict.reason is Reason.PAYLOAD
            else:
                assert verdict == STORE
            drawn = admission.are_drawn([(tp, start_ts, commit_ts)], 100)
            all_stored = admission.takes_all(1, state, disk) and drawn
            assert admission.takes_all(1, state, disk) == (state == node.ONLINE and disk is ROOM)
            assert not all_stored or verdict in (STORE, PROBE)

    def test_ends_have_a_reserve_and_the_last_of_it_is_nobodys(self) -> None:
        for floor, available in itertools.product((0, 1, 15, 16, 160), range(200)):
            disk = Disk(available, floor)
            for head in ((COMMIT, 5, 7), (ROLLBACK, 5, 0), (ROLLBACK, 0, 0)):
                refused = isinstance(admission.admit(head, 1, node.CLOSING, disk), Refuse)
                assert refused == (available <= floor / 16 if floor >= 16 else available == 0)

    def test_only_what_never_fits_is_refused_by_size(self) -> None:
        largest = admission.PAYLOAD_BYTES_MAX
        assert largest == 2_146_435_071
        assert admission.takes_all(largest, node.ONLINE, ROOM)
        assert admission.admit((COMMIT, 5, 7), largest, node.ONLINE, ROOM) == STORE
        verdict = admission.admit((COMMIT, 5, 7), largest + 1, node.ONLINE, ROOM)
        assert isinstance(verdict, Refuse)
        assert verdict.reason is Reason.SIZE
        assert not admission.takes_all(largest + 1, node.ONLINE, ROOM)

    def test_only_timestamps_that_an_oracle_can_have_given_enter(self) -> None:
        for start_ts, commit_ts in itertools.product((-1, 0, 1, 5, 100, 101), repeat=2):
            head = (COMMIT, start_ts, commit_ts)
            verdict = admission.admit(head, 1, node.ONLINE, ROOM, 100)
            assert (verdict == STORE) == (1 <= start_ts <= 100 and 0 <= commit_ts <= 100)
            assert admission.are_drawn([head], 100) is (verdict == STORE)
            if max(start_ts, commit_ts) > 100 and min(start_ts - 1, commit_ts) >= 0:
                assert isinstance(verdict, Refuse)
                assert verdict.reason is Reason.TIMESTAMP

    @pytest.mark.parametrize(
        ("prewrites", "key_bytes", "reason"),
        [
            (Prewrites(2, 3), KEY_BYTES_MAX, None),
            (Prewrites(2, 3), KEY_BYTES_MAX + 1, Reason.PAYLOAD),
            (Prewrites(2, 3), 0, None),
            (Prewrites(2, 3, need_keys=True), 0, Reason.PAYLOAD),
            (Prewrites(2, 3, need_keys=True), 1, None),
            (Prewrites(3, 3), 1, Reason.OPEN),
        ],
    )
    def test_a_prewrite_needs_room_and_a_key_that_can_be_asked_for(
        self, prewrites: Prewrites, key_bytes: int, reason: Reason | None
    ) -> None:
        for tp in (PREWRITE, COMMIT):
            verdict = admission.admit(
                (tp, 5, 0), 1, node.ONLINE, ROOM, prewrites=prewrites, key_bytes=key_bytes
            )
            found = verdict.reason if isinstance(verdict, Refuse) else None
            assert found is (reason if tp == PREWRITE else None)
            assert found or verdict == STORE
        assert admission.takes_all(1, node.ONLINE, ROOM, prewrites) is (prewrites.open < 3)
