"""Tables without key: what many changes come to, against rows changed one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.change import APPEND, DROP_ONE, REPLACE_ONE, ROW, SPLIT, Change
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.row_fold import fold
from drainer.mysql.rows.statement import keyless_net, old_literal, statements
from drainer.mysql.rows.table_target import target_of
from drainer.txn import TableVersion
from tests.common.rowcodec.tables import kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder

OPERATIONS = [APPEND, DROP_ONE, REPLACE_ONE]
INFO = table(("a", kind("int")), handle="rowid")
ENCODER = RowEncoder(INFO)
OWN = DownstreamTable("s", "t", (DownstreamColumn("a", "int"), DownstreamColumn("note", "int")), ())
PLAIN = target_of(TableVersion(INFO, "s", "t", 1), 1)
KEEPING = target_of(TableVersion(INFO, "s", "t", 1), 1, OWN)


def made(op: int, old: int, new: int) -> Change:
    if op == APPEND:
        return PLAIN, op, b"", ENCODER.insert((new,), rowid=1), 0
    if op == DROP_ONE:
        return PLAIN, op, b"", ENCODER.delete((old,), rowid=1), 0
    row = ENCODER.update((old,), (new,), rowid=1)
    return PLAIN, op, b"", row, PLAIN.sql.update_split(row)


def image(literal: bytes) -> int:
    return int(literal[1:-1])


@given(
    st.lists(st.integers(0, 3), max_size=6),
    st.lists(
        st.tuples(st.sampled_from([APPEND, DROP_ONE, REPLACE_ONE]), st.integers(0, 20), st.integers(0, 3))
    ),
)
def test_each_statement_finds_its_rows_and_the_contents_are_right(
    before: list[int], steps: list[tuple[int, int, int]]
) -> None:
    for keeps_rows in (False, True):
        there, rows, changes = Counter(before), list(before), []
        for op, which, new in steps:
            if op == APPEND:
                changes.append(made(op, 0, new))
                rows.append(new)
            elif rows:
                changes.append(made(op, rows[which % len(rows)], new))
                del rows[which % len(rows)]
                rows += [new] * (op == REPLACE_ONE)
        found = keyless_net(changes, keeps_rows=keeps_rows)
        for group in found.dropped:
            old = image(old_literal(group[0]))
            assert there[old] >= len(group)
            there[old] -= len(group)
        born = len(before) - sum(map(len, found.dropped))
        for pairs in found.turned:
            old, now = image(old_literal(pairs[0][0])), pairs[0][1]
            assert there[old] >= len(pairs)
            there[old] -= len(pairs)
            there[image(PLAIN.sql.update_literals(now[3], now[4]))] += len(pairs)
        for change in found.appended:
            there[image(PLAIN.sql.literals_of("new" if change[SPLIT] else "insert", change[ROW]))] += 1
        assert +there == Counter(rows)
        assert born + len(found.appended) == len(rows)
        assert keeps_rows or not found.turned


def test_a_row_stays_where_the_downstream_has_columns_of_its_own() -> None:
    row = ENCODER.update((1,), (2,), rowid=1)
    for target, wanted in (
        (KEEPING, [b"UPDATE `s`.`t` SET `a`=2 WHERE `a`<=>1 LIMIT 1"]),
        (PLAIN, [b"DELETE FROM `s`.`t` WHERE `a`<=>1 LIMIT 1", b"INSERT INTO `s`.`t` (`a`) VALUES (2)"]),
    ):
        change = (target, REPLACE_ONE, b"", row, target.sql.update_split(row))
        made_ = list(statements(fold([change]), 1 << 20, replaying=False))
        assert [(each.sql, each.expected) for each in made_] == [(sql, (1, 1)) for sql in wanted]


def test_rows_leave_an_image_before_others_get_it() -> None:
    changes = [made(REPLACE_ONE, 1, 9), made(REPLACE_ONE, 2, 3), made(REPLACE_ONE, 9, 2)]
    found = keyless_net(changes, keeps_rows=True)
    assert [image(old_literal(pairs[0][0])) for pairs in found.turned] == [2, 1]
