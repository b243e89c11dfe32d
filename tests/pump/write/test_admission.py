"""Admission: the whole product of states, disks and binlogs."""

from __future__ import annotations

import itertools

from pump.write import admission
from pump.write.admission import PROBE, STORE, Disk, Reason, Refuse
from tidb_binlog.binlog import COMMIT, PREWRITE, ROLLBACK
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
