"""Mending: the statements of each kind of row, in words; what they do is in `test_repair_file`."""

from __future__ import annotations

from dataclasses import replace

from drainer.compare.report.repair.mending import Mending, mending
from drainer.compare.verify.result import ComparedColumn, How, Kind, RowDifference, State, TableResult
from drainer.mysql.rows.dialect import Dialect

ID = ComparedColumn("id", is_key=True, type="int")
CODE = ComparedColumn("code", is_unique=True, type="varchar")
RATIO = ComparedColumn("ratio", type="double")
SUM = ComparedColumn("sum", is_generated=True, type="int")
TABLE = TableResult((("d", "t"),), ("d", "t"), State.DIFFERS, columns=(ID, CODE, RATIO, SUM))
OLD = (b"1", b"'a'", b"1.5", b"NULL")
NEW = (b"1", b"'a'", b"NULL", b"7")
SEEN = (
    b"`id`=1 AND `id`<=>1 AND BINARY CONVERT(`code` USING utf8mb4)<=>'a'"
    b" AND `ratio`<=>1.5e0 AND `sum` IS NULL"
)
INSERT = (
    b"INSERT INTO `d`.`t` (`id`,`code`,`ratio`) SELECT 1,'a',NULL FROM DUAL"
    b" WHERE NOT EXISTS (SELECT 1 FROM `d`.`t` WHERE `id`=1)"
)


def changed(*columns: str) -> RowDifference:
    return RowDifference((b"1",), Kind.CHANGED, NEW, OLD, columns)


def mended(found: RowDifference, table: TableResult = TABLE) -> Mending:
    return mending(table, found, Dialect.MARIADB)


def test_a_row_that_is_missing_is_inserted_and_a_generated_column_left_to_the_server() -> None:
    assert mended(RowDifference((b"1",), Kind.MISSING, NEW, None)) == Mending((), (INSERT,))


def test_a_row_too_many_is_removed_as_it_was_seen() -> None:
    found = mended(RowDifference((b"1",), Kind.EXTRA, None, OLD))
    assert found == Mending((b"DELETE FROM `d`.`t` WHERE " + SEEN,))


def test_a_changed_row_is_updated_where_it_differs() -> None:
    update = b"UPDATE `d`.`t` SET `ratio`=NULL WHERE " + SEEN
    assert mended(changed("ratio")) == Mending((), (update,))


def test_a_row_that_differs_in_a_key_goes_before_it_comes() -> None:
    removal = b"DELETE FROM `d`.`t` WHERE " + SEEN
    assert mended(changed("code", "ratio")) == Mending((removal,), (INSERT,))


def test_columns_that_only_the_downstream_has_are_kept() -> None:
    apart = ComparedColumn("remark", How.NOT_COMPARED, "upstream has no such column")
    table = replace(TABLE, columns=(*TABLE.columns, apart))
    (update,) = mended(changed("code"), table).writes
    assert update.startswith(b"UPDATE `d`.`t` SET `code`='a' WHERE ")
    computed = replace(TABLE, columns=(*TABLE.columns, replace(apart, is_generated=True)))
    assert len(mended(changed("code"), computed).removals) == 1, "the server computes it again"


def test_a_column_that_the_downstream_computes_is_not_written() -> None:
    only = mended(changed("sum"))
    assert (only.removals, only.writes) == ((), ())
    assert "computes sum" in only.refused
    both = mended(changed("ratio", "sum"))
    assert len(both.writes) == 1
    assert both.refused == "", "it follows what is put right"


def test_what_a_strict_tidb_does_not_find_is_looked_for_by_a_lax_one() -> None:
    on = ComparedColumn("on", is_key=True, type="date")
    keyed = replace(TABLE, columns=(on, replace(CODE, is_unique=False)))
    keyless = replace(keyed, columns=(replace(on, is_key=False), *keyed.columns[1:]))
    for day, code, dialect, is_lax in (
        (b"'2020-00-01'", b"'a'", Dialect.TIDB, True),
        (b"'2020-01-01'", b"'a-00'", Dialect.TIDB, False),
        (b"'2020-00-01'", b"'a'", Dialect.MARIADB, False),
    ):
        row = (day, code)
        changed = RowDifference((day,), Kind.CHANGED, (day, b"'b'"), row, ("code",))
        missing = RowDifference((day,), Kind.MISSING, row, None)
        fewer = RowDifference((), Kind.MISSING, row, None, copies=(2, 1))
        for table, found in ((keyed, changed), (keyed, missing), (keyless, fewer)):
            made = mending(table, found, dialect)
            assert (len(made.writes), made.is_lax) == (1, is_lax)


def test_rows_without_a_key_are_counted() -> None:
    table = replace(TABLE, columns=(CODE,))
    fewer = mended(RowDifference((), Kind.EXTRA, None, (b"'a'",), copies=(1, 3)), table)
    there = b"BINARY CONVERT(`code` USING utf8mb4)<=>'a'"
    seen = b"3=(SELECT c FROM (SELECT COUNT(*) AS c FROM `d`.`t` WHERE " + there + b") AS seen)"
    assert fewer == Mending((b"DELETE FROM `d`.`t` WHERE " + there + b" AND " + seen + b" LIMIT 2",))
    more = mended(RowDifference((), Kind.MISSING, (b"'a'",), None, copies=(2, 0)), table)
    assert more.writes[0].startswith(
        b"INSERT INTO `d`.`t` (`code`) SELECT 'a' FROM (SELECT 1 UNION ALL SELECT 1) AS copies WHERE 0=("
    )


def test_json_is_compared_as_the_server_has_it() -> None:
    table = replace(TABLE, columns=(ID, ComparedColumn("j", type="json")))
    found = RowDifference((b"1",), Kind.EXTRA, None, (b"1", b"'{}'"))
    assert b"BINARY CONVERT(`j` USING utf8mb4)<=>'{}'" in mending(table, found, Dialect.MARIADB).removals[0]
    assert b"`j`<=>CAST('{}' AS JSON)" in mending(table, found, Dialect.TIDB).removals[0]


def test_times_that_do_not_differ_are_named_so_that_the_server_leaves_them() -> None:
    at = ComparedColumn("at", type="timestamp")
    apart = ComparedColumn("seen", How.NOT_COMPARED, "upstream has no such column", type="datetime")
    table = replace(TABLE, columns=(*TABLE.columns, at, apart))
    found = RowDifference((b"1",), Kind.CHANGED, (*NEW, b"'x'"), (*OLD, b"'x'"), ("ratio",))
    (update,) = mended(found, table).writes
    assert update.startswith(b"UPDATE `d`.`t` SET `ratio`=NULL, `at`=`at`, `seen`=`seen` WHERE ")


def test_several_rows_of_one_key_are_left_to_people() -> None:
    found = mended(RowDifference((b"1",), Kind.MISSING, NEW, None, copies=(2, 1)))
    assert (found.removals, found.writes) == ((), ())
    assert "several rows upstream have what is one key downstream" in found.refused
