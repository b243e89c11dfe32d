"""Where a drainer begins: every small combination of what may be stored, against the rules said plainly."""

from __future__ import annotations

from itertools import product

import pytest

from drainer.checkpoint.lane_basis import StoredBasis, TableSpread
from drainer.checkpoint.resume import DrainerState, Start, StarterInfo, StoredState, resume_point
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import COMPLETE, Position
from tidb_binlog.errors import Conflict, Corruption

NOW = 9
ROWS = (
    None,
    Checkpoint(0, False, 0),
    Checkpoint(5, True, 1),
    *(Checkpoint(ts, False, 1, epoch, safe) for ts in (4, 5, 6) for epoch in (1, 2, 3) for safe in (0, 8)),
)
STATES = (
    None,
    *(DrainerState(2, "a", Checkpoint(ts, False, 1, 2, safe), None) for ts in (4, 5) for safe in (0, 8)),
)
LANES = (
    (),
    (Position(5),),
    (Position(5), Position(5)),
    (Position(5), Position(6)),
    (Position(3), Position(5, 1), Position(7)),
)
INITIAL = 2


def said_plainly(found: StoredState, lanes: int) -> tuple[tuple[Position, ...], int, int, bool]:
    """(positions, safe_until, floor, foreign) by cases, without the rules' own words."""
    row, state = found.row, found.state
    ours_says = state.checkpoint if state else None
    if row is None:
        foreign = False
    elif row.epoch is None or ours_says is None:
        foreign = True
    elif (
        found.elsewhere
    ):  # the downstream is written first: a row of ours that is ahead of it is too old a downstream
        foreign = False
    else:
        assert state is not None
        foreign = row.epoch > state.epoch or row.commit_ts != ours_says.commit_ts
    if foreign:
        assert row is not None
        floor = row.commit_ts or INITIAL
        return (Position(floor),) * lanes, NOW, floor, True
    floor = (ours_says.commit_ts if ours_says else 0) or INITIAL
    kept = []
    for lane in found.lanes:
        behind = lane.commit_ts < floor or (lane.commit_ts == floor and lane.rows != COMPLETE)
        kept.append(Position(floor) if behind else lane)
    safe = ours_says.safe_until if ours_says else 0
    if not kept or (len(set(kept)) == 1 and kept[0].rows == COMPLETE):
        return (kept[0] if kept else Position(floor),) * lanes, safe, floor, False
    return tuple(kept), safe, floor, False


@pytest.mark.parametrize("elsewhere", [False, True])
def test_every_small_combination(elsewhere: bool) -> None:
    for row, state, lanes, count in product(ROWS, STATES, LANES, (1, 2, 4)):
        found = StoredState(row, state, lanes, (), elsewhere)
        start = resume_point(found, StarterInfo(1, count, INITIAL, NOW))
        positions, safe, floor, foreign = said_plainly(found, count)
        assert (start.positions, start.safe_mode.until_ts, start.floor_ts, start.foreign) == (
            positions,
            safe,
            floor,
            foreign,
        ), found
        assert start.epoch == NOW, "a number that no start had before, whatever is stored"
        # Nothing is left out: no lane stands behind what anybody says to have applied.
        assert all(
            lane.complete_ts >= 0 and lane.order_key() >= Position(floor).order_key()
            for lane in start.positions
        )


def begin(
    row: Checkpoint | None = None, state: DrainerState | None = None, *lanes: Position, **given: object
) -> Start:
    starter = {"cluster_id": 77, "lane_count": 2, "initial_ts": INITIAL, "now_ts": NOW, **given}
    others = starter.pop("others", ())
    return resume_point(StoredState(row, state, lanes, others), StarterInfo(**starter))  # type: ignore[arg-type]


def test_an_intent_of_the_last_drainer_is_kept() -> None:
    intent = Intent(5, 1, "x", {})
    state = DrainerState(2, "a", Checkpoint(5, False, 1, 2), intent)
    assert begin(Checkpoint(5, False, 1, 2), state).intent is intent


OWNED = DrainerState(2, "drainer-a", Checkpoint(5, False, 1, 2), None)


def test_a_living_drainer_of_another_id_is_named_and_not_pushed_aside() -> None:
    with pytest.raises(Conflict, match=r"drainer-a is running .* cluster 77, which drainer drainer-b"):
        begin(Checkpoint(5, False, 1, 2), OWNED, owner="drainer-b", living={"drainer-a", "drainer-b"})


@pytest.mark.parametrize(
    ("owner", "living"),
    [("drainer-b", {"drainer-b", "drainer-c"}), ("drainer-a", {"drainer-a"}), ("", {"drainer-a"})],
)
def test_a_dead_one_and_our_own_id_are_taken_over(owner: str, living: set[str]) -> None:
    assert begin(Checkpoint(5, False, 1, 2), OWNED, owner=owner, living=living).epoch == NOW


@pytest.mark.parametrize("epoch", [NOW - 1, NOW, NOW + 1])
def test_epochs_rise_even_where_the_clock_does_not(epoch: int) -> None:
    state = DrainerState(epoch, "a", Checkpoint(5, False, 1, epoch), None)
    assert begin(Checkpoint(5, False, 1, epoch), state).epoch == max(epoch + 1, NOW)


def test_a_new_cluster_beside_a_known_one_needs_a_word() -> None:
    with pytest.raises(Conflict, match="nothing of cluster 77, but of cluster 12") as raised:
        begin(others=(12,), initial_is_given=False)
    assert "initial-commit-ts" in raised.value.hint
    assert begin(others=(12,)).floor_ts == INITIAL
    assert begin(initial_is_given=False).floor_ts == INITIAL
    assert begin(Checkpoint(5, False, 1), others=(12,), initial_is_given=False).floor_ts == 5


@pytest.mark.parametrize(
    ("row", "state", "lanes"),
    [
        (Checkpoint(NOW + 1, True, 1), None, ()),
        (Checkpoint(5, False, 1, 2), OWNED, (Position(5), Position(NOW + 1))),
    ],
)
def test_a_checkpoint_of_the_future_is_refused(
    row: Checkpoint, state: DrainerState | None, lanes: tuple[Position, ...]
) -> None:
    with pytest.raises(Corruption, match=r"cluster 77 is at 10, but the upstream is at 9"):
        begin(row, state, *lanes)


def test_where_to_begin_without_a_checkpoint_may_be_ahead() -> None:
    assert begin(initial_ts=NOW + 5).floor_ts == NOW + 5


def test_the_first_start_of_all_has_the_first_epoch() -> None:
    assert begin(now_ts=1).epoch == 1


def test_up_to_now_is_not_the_future() -> None:
    assert begin(Checkpoint(NOW, True, 1)).floor_ts == NOW


def test_of_many_clusters_some_are_named() -> None:
    with pytest.raises(Conflict, match=r"but of cluster 1, 2, 3, 4 \("):
        begin(others=(1, 2, 3, 4, 5), initial_is_given=False)


def test_a_row_of_the_state_is_read() -> None:
    saved, intent = Checkpoint(5, False, 1, 2), Intent(6, 1, "x", {})
    assert DrainerState.from_row("2", "a", None, None) == DrainerState(2, "a", None, None)
    state = DrainerState.from_row(2, "a", saved.to_json(), intent.to_json())
    assert (state.checkpoint, state.intent) == (saved, intent)


def test_what_may_be_downstream_and_whether_lanes_stand_together() -> None:
    saved, intent = Checkpoint(5, False, 1, 2), Intent(8, 1, "x", {})
    apart = begin(saved, DrainerState(2, "a", saved, intent), Position(5), Position(7, 1))
    assert (apart.past_ts, apart.intent_ts, apart.drained) == (8, 8, False)
    together = begin(saved, DrainerState(2, "a", saved, None), Position(7), Position(7))
    assert (together.past_ts, together.intent_ts, together.drained) == (7, 0, True)
    inside = begin(saved, DrainerState(2, "a", saved, None), Position(7, 1), Position(7, 1))
    assert (inside.past_ts, inside.drained) == (7, False)


def test_of_lanes_that_stand_together_only_the_rules_count() -> None:
    tables = {1: TableSpread(Spread.BY_TABLE)}
    saved, known, other = Checkpoint(5, False, 1, 2), StoredBasis("r", tables), StoredBasis("r", {}, -1)
    state = DrainerState(2, "a", saved, None)

    def basis(stored: StoredBasis | None, *lanes: Position, row: Checkpoint = saved) -> StoredBasis | None:
        return resume_point(
            StoredState(row, state, lanes, basis=stored), StarterInfo(77, 2, INITIAL, NOW)
        ).basis

    together, apart = (Position(7), Position(7)), (Position(5), Position(7))
    assert basis(known, *together) == StoredBasis("r")
    assert basis(known, *apart) == known
    assert basis(None, *apart) is None
    assert basis(other, *together) is None
    assert basis(known, *apart, row=Checkpoint(4, False, 1, 2)) is None, "another program's"
    with pytest.raises(Corruption, match="of another release"):
        basis(other, *apart)
