"""Lane basis, rule by rule; in every order with lanes and kills it is in test_lane_basis_exhaustive."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drainer.checkpoint.lane_basis import (
    HASH_VERSION,
    PINNED,
    LaneBasis,
    Plan,
    StoredBasis,
    TableSpread,
    as_version_1,
    header_json,
    key_of,
    spread_as,
    spread_of,
)
from drainer.mysql.rows.causality import Spread, lane_of_table
from drainer.mysql.rows.change import TableTarget
from drainer.txn import TableVersion
from tests.drainer.support.lane_model import TextPlan, table
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import replace
from tidb_binlog.table_info import DECIMAL, FLAG_UNSIGNED, LONGLONG, VARCHAR, Column, FieldType

KEY = ("index", "id")
BY_KEY, PADDED = TableSpread(Spread.BY_KEY, KEY), TableSpread(Spread.BY_PADDED_KEY, KEY)
COLLATED, OTHERWISE = (
    TableSpread(Spread.BY_COLLATED_KEY, KEY, (label,)) for label in ("some_ci 1", "some_ci 2")
)
LANES = 7


class Keyed(TextPlan):
    def __init__(self, *types: FieldType, index: int | None = None) -> None:
        self.key_index = index
        self.key_columns = tuple(Column(at, f"K{at}", at, kind) for at, kind in enumerate(types))


def target(*types: FieldType, index: int | None = None, fold_id: int = 1, upstream: int = 1) -> TableTarget:
    plain: Any = table(upstream, keyed=True, pinned=not types, lanes=LANES)
    return replace(plain, sql=Keyed(*types, index=index), fold_id=fold_id)


NUMBER, UNSIGNED = FieldType(LONGLONG, 0, 20), FieldType(LONGLONG, FLAG_UNSIGNED, 20)


def test_what_serves_two_tables_is_as_wide_as_the_narrower_one() -> None:
    other_key = TableSpread(Spread.BY_KEY, ("index", "other"))
    cases = [
        (BY_KEY, BY_KEY, BY_KEY),
        (PADDED, PADDED, PADDED),
        (BY_KEY, PADDED, PADDED),
        (BY_KEY, other_key, PINNED),
        (PADDED, other_key, PINNED),
        (COLLATED, COLLATED, COLLATED),
        (COLLATED, OTHERWISE, PINNED),
        (COLLATED, PADDED, PINNED),
        (COLLATED, other_key, PINNED),
        (BY_KEY, PINNED, PINNED),
        (PINNED, PINNED, PINNED),
    ]
    for one, other, both in cases:
        assert one.joined(other) == other.joined(one) == both
    assert [spread.pinned for spread in (PINNED, BY_KEY, PADDED)] == [True, False, False]


def test_what_is_stored_is_read_and_what_is_damaged_says_so() -> None:
    for spread in (BY_KEY, PADDED, PINNED, COLLATED):
        assert TableSpread.from_json(spread.to_json()) == spread
    for text in (
        "",
        "[]",
        "{}",
        '{"spread": "wide", "key": []}',
        '{"spread": "key"}',
        '{"spread": "key", "key": 1}',
        '{"spread": "collated key", "key": [], "collations": 1}',
    ):
        with pytest.raises(Corruption, match="spread of a table") as caught:
            TableSpread.from_json(text)
        assert "lane_basis table" in caught.value.hint
    for text in ("", "[]", "{}", '{"hash": 2}', '{"hash": null, "rules": ""}'):
        with pytest.raises(Corruption, match="cannot be read"):
            StoredBasis.from_json(text, {})
    stored = StoredBasis.from_json(header_json("rules"), {4: BY_KEY.to_json()})
    assert (stored.rules, dict(stored.tables), stored.is_known) == ("rules", {4: BY_KEY}, True)


def test_what_the_release_before_stored_is_read() -> None:
    stored = StoredBasis.from_json('{"hash": 2, "rules": "theirs"}', {4: PADDED.to_json()})
    assert (dict(stored.tables), stored.is_known) == ({4: PADDED}, True)
    assert '"collations"' not in PADDED.to_json(), "which is written as it did"


def test_of_another_way_to_hash_no_table_is_read() -> None:
    header = json.dumps({"hash": HASH_VERSION + 1, "rules": "theirs"})
    stored = StoredBasis.from_json(header, {4: "whatever they write"})
    assert (stored.rules, dict(stored.tables), stored.is_known) == ("theirs", {}, False)


def test_keys_are_the_same_where_equal_values_have_equal_bytes() -> None:
    text = FieldType(VARCHAR, 0, 20, charset="utf8mb4", collate="utf8mb4_bin")
    decimal = FieldType(DECIMAL, 0, 10, 2)
    different = [
        (target(NUMBER), target(NUMBER, index=3)),
        (target(NUMBER), target(UNSIGNED)),
        (target(NUMBER), target(NUMBER, NUMBER)),
        (target(decimal), target(FieldType(DECIMAL, 0, 12, 2))),
        (target(decimal), target(FieldType(DECIMAL, 0, 10, 3))),
        (target(text), target(FieldType(VARCHAR, 0, 20, charset="utf8mb4", collate="utf8mb4_general_ci"))),
    ]
    for one, other in different:
        assert key_of(one) != key_of(other)
    same = [(target(NUMBER), target(FieldType(LONGLONG, 0, 11))), (target(UNSIGNED), target(UNSIGNED))]
    for one, other in same:
        assert key_of(one) == key_of(other)
    # As they are stored.
    assert key_of(target(NUMBER)) == ("handle", "k0 8   0 ")
    assert key_of(target(UNSIGNED, decimal, index=1)) == ("index", "k0 8   0  unsigned", "k1 246   10,2 ")


def test_a_target_is_spread_as_it_is_stored() -> None:
    wide, narrow = target(NUMBER), target()
    assert spread_of(wide) == TableSpread(Spread.BY_KEY, key_of(wide))
    assert spread_of(narrow) == PINNED
    assert spread_as(wide, spread_of(wide), LANES) is wide
    pinned = spread_as(replace(wide, fold_id=12345, lane=-1), PINNED, LANES)
    assert (pinned.spread, pinned.lane) == (Spread.BY_TABLE, lane_of_table(12345, LANES))
    assert pinned.sql is wide.sql
    collations = cast(Any, (SimpleNamespace(label="general 5"), None))
    collated = replace(wide, spread=Spread.BY_COLLATED_KEY, collations=collations)
    assert spread_of(collated).collations == ("general 5", "")


def test_releases_without_a_basis_had_what_servers_compare_loosely_in_one_lane() -> None:
    loose = FieldType(VARCHAR, 0, 20, charset="utf8mb4", collate="utf8mb4_general_ci")
    for key in ((loose,), (NUMBER, loose)):
        by_key = replace(target(*key), spread=Spread.BY_KEY)
        assert as_version_1(by_key, LANES).spread is Spread.BY_TABLE
    assert as_version_1(target(NUMBER), LANES).spread is Spread.BY_KEY


def test_releases_without_a_basis_folded_tables_of_their_own_name_by_their_id() -> None:
    own = target(NUMBER, fold_id=99, upstream=5)
    routed = replace(own, version=TableVersion(own.version.info, "s", "t5", 1, ("s", "elsewhere")))
    as_own = as_version_1(replace(own, version=replace_target(own.version)), LANES)
    assert (as_own.fold_id, as_own.lane) == (5, lane_of_table(5, LANES))
    assert as_version_1(routed, LANES) is routed


def replace_target(version: TableVersion) -> TableVersion:
    return TableVersion(version.info, version.schema, version.name, 1, (version.schema, version.name))


def test_what_rows_of_the_past_were_spread_by() -> None:
    wide = target(NUMBER)
    assert LaneBasis().of_past(wide) is None, "no lane had rows of it"
    assert LaneBasis({1: spread_of(wide)}).of_past(wide) == spread_of(wide)
    assert LaneBasis({1: PINNED}).of_past(wide) == PINNED, "whatever its key is now"
    assert LaneBasis({1: TableSpread(Spread.BY_KEY, ("handle", "another"))}).of_past(wide) is None
    assert LaneBasis({2: PINNED}).of_past(wide) is None


def test_what_has_to_be_stored_before_a_row_goes_out() -> None:
    basis, wide, narrow = LaneBasis(), target(NUMBER), target(upstream=2)
    by_key = spread_of(wide)
    first = basis.plan([wide])
    assert first == Plan({1: by_key}, {1: by_key}, {})
    assert basis.plan([wide]) == first, "it is not stored yet"
    basis.stored(first)
    assert basis.plan([wide]) == Plan({1: by_key}, {}, {})
    joined = basis.plan([narrow])  # another table upstream that goes there
    assert joined == Plan({1: PINNED}, {}, {1: PINNED})
    basis.stored(joined)
    assert basis.of_past(wide) == PINNED
    assert basis.plan([wide]) == Plan({1: PINNED}, {}, {}), "what goes there is known"


@pytest.mark.parametrize("fold_ids", [None, [1]])
def test_where_all_lanes_stand_at_one_position_a_table_may_be_another(fold_ids: list[int] | None) -> None:
    basis, wide = LaneBasis(), target(NUMBER)
    beside = target(NUMBER, fold_id=3, upstream=3)
    basis.stored(basis.plan([wide, beside, target(upstream=2)]))
    assert basis.of_past(wide) == PINNED
    basis.settled(fold_ids)
    assert basis.of_past(wide) is None
    assert basis.plan([wide]) == Plan({1: spread_of(wide)}, {1: spread_of(wide)}, {})
    assert basis.of_past(beside) == (spread_of(beside) if fold_ids else None)
    basis.settled([1, 77])
