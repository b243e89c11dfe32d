"""Whether a DDL took effect before: by fingerprints, and by what the downstream has."""

from __future__ import annotations

from itertools import product

from drainer.changes.ddl_effect import EffectKind, effect_kind
from drainer.ddl.derive.derive import Change
from drainer.ddl.run.ran_before import has_run, is_seen
from tests.cases import case
from tidb_binlog.ddl_job import ActionType

SHAPES: tuple[dict[str, str | None], ...] = (
    {},
    {"d.t": None},
    {"d.t": "a"},
    {"d.t": "b"},
    {"d.t": "a", "d.u": None},
)


def test_another_fingerprint_means_that_it_ran() -> None:
    for before, now in product(SHAPES, SHAPES):
        with case(before, now):
            assert has_run(before, now) == (before != now)


def test_of_a_database_only_its_being_there_says_it() -> None:
    for action in ActionType:
        for has_database in [False, True]:
            with case(action, has_database):
                change = Change(action, database=("d", "utf8mb4", "utf8mb4_bin"))
                wanted = {
                    EffectKind.CREATE_DATABASE: has_database,
                    EffectKind.DROP_DATABASE: not has_database,
                }
                assert is_seen(change, has_database=has_database) == wanted.get(effect_kind(action), False)


def test_what_changes_no_table_is_not_seen() -> None:
    assert not any(is_seen(Change(action), has_database=False) for action in ActionType)
