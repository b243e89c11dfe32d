"""History: what documents say becomes curves of a bounded size."""

from __future__ import annotations

import math
import sys

from tidb_binlog.status.drainer import DrainerDocument, LagStatus
from tidb_binlog.status.history import EVERY_S, PLACES, History, Look, look, pieces
from tidb_binlog.status.pump import PumpDocument, PumpStatus, StagesStatus, StageStatus


def last(history: History) -> tuple[float, float, float]:
    return history.behind_s[-1], history.per_s[-1], history.free_bytes[-1]


def test_what_documents_of_both_kinds_say() -> None:
    stages = StagesStatus(written=StageStatus(records=40), sorted=StageStatus(lag_s=2.5))
    assert look(PumpDocument(pump=PumpStatus(stages=stages))) == Look(2.5, 40)
    assert look(DrainerDocument(lag=LagStatus(total_s=3.0), rows=7)) == Look(3.0, 7)
    quiet = LagStatus(total_s=3.0, eta_s=0.0)
    assert look(DrainerDocument(lag=quiet)) == Look(0.0, 0), "a quiet stream is up to date"
    for silent in (None, PumpDocument(), PumpDocument(pump=PumpStatus()), DrainerDocument(state="standby")):
        assert look(silent) == Look(None, None)


def test_a_rate_is_that_of_the_time_between_two_looks() -> None:
    history = History()
    assert history.is_empty
    history.note(100.0, Look(1.0, 50), 9)
    assert last(history)[::2] == (1.0, 9.0)
    assert math.isnan(history.per_s[-1]), "of one look nobody knows how many a second"
    history.note(110.0, Look(0.0, 250), None)
    assert last(history)[:2] == (0.0, 20.0)
    assert math.isnan(history.free_bytes[-1])
    history.note(120.0, Look(0.0, 30), 9)
    assert math.isnan(history.per_s[-1]), "the stream was built anew"
    history.note(130.0, Look(0.0, 130), 9)
    assert history.per_s[-1] == 10.0
    assert not history.is_empty


def test_what_was_passed_over_is_left_out_of_the_curve() -> None:
    history = History()
    history.note(0.0, Look(1.0, 0), 9)
    history.note(4 * EVERY_S, Look(2.0, 400), 9)
    assert pieces(history.behind_s) == [[(PLACES - 5, 1.0)], [(PLACES - 1, 2.0)]]
    assert history.per_s[-1] == 400 / (4 * EVERY_S)
    history.note(1e9, Look(3.0, 400), 9)
    assert pieces(history.behind_s) == [[(PLACES - 1, 3.0)]]


def test_it_keeps_an_hour_and_no_more_memory_whatever_comes() -> None:
    assert PLACES * EVERY_S == 3600
    history = History()
    for number in range(10_000):
        history.note(number * EVERY_S, Look(float(number), number * 1000), 1 << 40)
    curves = (history.behind_s, history.per_s, history.free_bytes)
    assert [len(curve) for curve in curves] == [PLACES] * 3
    assert history.behind_s[0] == 10_000 - PLACES
    assert sum(len(curve) * curve.itemsize for curve in curves) == 8640
    assert sum(map(sys.getsizeof, curves)) < 12 * 1024
