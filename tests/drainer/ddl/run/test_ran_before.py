"""Whether a DDL took effect before: by fingerprints, and by what the downstream has."""

from __future__ import annotations

from itertools import product

import pytest

from drainer.changes.ddl_effect import EffectKind, effect_kind
from drainer.ddl.derive.derive import Change
from drainer.ddl.run.ran_before import has_run, is_seen
from tidb_binlog.ddl_job import ActionType

SHAPES: tuple[dict[str, str | None], ...] = (
    {},
    {"d.t": None},
    {"d.t": "a"},
    {"d.t": "b"},
    {"d.t": "a", "d.u": None},
)


@pytest.mark.parametrize(("before", "now"), list(product(SHAPES, SHAPES)))
def test_another_fingerprint_means_that_it_ran(
    before: dict[str, str | None], now: dict[str, str | None]
) -> None:
    assert has_run(before, now) == (before != now)


@pytest.mark.parametrize("action", list(ActionType))
@pytest.mark.parametrize("has_database", [False, True])
def test_of_a_database_only_its_being_there_says_it(action: ActionType, has_database: bool) -> None:
    change = Change(action, database=("d", "utf8mb4", "utf8mb4_bin"))
    wanted = {EffectKind.CREATE_DATABASE: has_database, EffectKind.DROP_DATABASE: not has_database}
    assert is_seen(change, has_database=has_database) == wanted.get(effect_kind(action), False)


def test_what_changes_no_table_is_not_seen() -> None:
    assert not any(is_seen(Change(action), has_database=False) for action in ActionType)
