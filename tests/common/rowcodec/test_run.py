"""Many columns in a row: what expressions match and what is read in place is what the strict reader reads.

Fast and plain form are asked about random rows of every type, about every truncation and about changed bytes:
they give the same value, or the same error.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from drainer.mysql.literal.plan import compile_sql
from tests.common.rowcodec.random_rows import RandomTable
from tests.common.rowcodec.tables import key, kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import RowReaders, compile_table
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.values import python_conversion
from tidb_binlog.table_info import TableInfo


class BothForms:
    """Readers of one table version in the fast and in the plain form."""

    def __init__(self, info: TableInfo) -> None:
        self.plan, self.sql = compile_table(info), compile_sql(info)

    def agree(self, row: bytes) -> bool:
        """Whether the row is one, of any kind: fast and plain form must say the same of it."""
        plan, sql = self.plan, self.sql
        strict, plain, render = plan.strict, sql._readers.strict, sql._render
        pairs: list[tuple[Callable[[bytes], Any], Callable[[bytes], Any]]] = [
            (plan.decode_insert, strict.insert),
            (plan.decode_delete, strict.delete),
            (plan.decode_update, lambda row: strict.update(row)[:2]),
            (sql.insert_literals, lambda row: render(plain.insert(row))),
        ]
        found = False
        for fast, slow in pairs:
            said = outcome(fast, row)
            assert said == outcome(slow, row), row.hex()
            found = found or said[0] == "value"
        try:
            old, new, split = plain.update(row)
        except RowError:
            return found
        assert sql.update_split(row) == split
        assert sql.update_literals(row, split) == render(new)
        if old[0] is not None and new[0] is not None:
            assert sql.update_keys(row) == (b"%d" % old[0], b"%d" % new[0], split)
        return True


def outcome(function: Callable[[bytes], Any], row: bytes) -> tuple[str, str]:
    try:
        return "value", repr(function(row))
    except RowError as error:
        return "error", str(error)


def rows_of(encoder: RowEncoder, old: tuple[Any, ...], new: tuple[Any, ...]) -> list[bytes]:
    return [encoder.insert(old), encoder.delete(old), encoder.update(old, new)]


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_every_type(seed: int) -> None:
    chance = Random(seed)
    made = RandomTable(chance)
    forms, encoder = BothForms(made.info), RowEncoder(made.info)
    for number in range(12):
        for row in rows_of(encoder, made.row(number), made.row(number + chance.randrange(2))):
            assert forms.agree(row)


def test_a_string_that_ends_behind_the_row_is_refused_though_all_after_it_may_be_absent() -> None:
    """The matcher takes an offset behind the end for the end."""
    nullable = ((f"c{number}", kind("bigint")) for number in range(6))
    info = table(("id", key("bigint")), ("s", kind("varchar", not_null=True)), *nullable)
    forms, values = BothForms(info), (7, "text", *range(6))
    row = RowEncoder(info).insert(values)
    end = row.index(b"text") + 4
    assert forms.agree(row)
    assert forms.agree(row[:end])
    assert not forms.agree(row[: end - 1])


def test_rows_as_they_are_written_never_need_the_strict_reader() -> None:
    """Else the fast form would be right and slow."""
    chance = Random(1)
    for _ in range(5):
        made = RandomTable(chance)
        readers, encoder = RowReaders(made.info, python_conversion), RowEncoder(made.info)
        places = readers.all_places
        refused: list[bytes] = []
        insert = readers.of_insert(places, ["return True"], refused.append)
        update = readers.of_update(places, places, ["return True"], refused.append)
        keys = readers.of_update((0,), (0,), ["return True"], refused.append, whole=False)
        for number in range(12):
            written, _, changed = rows_of(encoder, made.row(number), made.row(number))
            assert insert(written)
            assert update(changed)
            assert keys(changed)
        assert not refused


@pytest.mark.parametrize("seed", range(3))
def test_every_truncation_and_changed_bytes(seed: int) -> None:
    chance = Random(seed)
    made = RandomTable(chance)
    forms, encoder = BothForms(made.info), RowEncoder(made.info)
    refused = 0
    for row in rows_of(encoder, made.row(1), made.row(1)):
        for size in range(len(row)):
            refused += not forms.agree(row[:size])
        for _ in range(250):
            changed = bytearray(row)
            for _ in range(chance.randint(1, 2)):
                changed[chance.randrange(len(row))] = chance.choice((0, 127, 128, 255, chance.randrange(256)))
            refused += not forms.agree(bytes(changed))
    assert refused > 500


def test_a_string_that_reaches_beyond_the_row_is_refused() -> None:
    """All columns behind it may be absent, so that nothing would be missing there."""
    texts = [(f"c{number}", kind("int")) for number in range(6)]
    info = table(
        ("id", key("int")), *texts, ("s", kind("varchar")), *((f"d{n}", kind("int")) for n in range(6))
    )
    row = RowEncoder(info).insert((1, *range(6), "text", *(None,) * 6))
    forms = BothForms(info)
    assert forms.agree(row)
    assert not forms.agree(row[:-1])
    for decode in (forms.plan.decode_insert, forms.sql.insert_literals):
        with pytest.raises(RowError, match="column s"):
            decode(row[:-1])


def test_long_varints_and_long_strings_are_read_in_a_run() -> None:
    """Numbers of ten bytes, overlong ones, and lengths of one to three bytes."""
    columns = [(f"c{number}", kind("bigint")) for number in range(5)]
    info = table(("id", key("bigint")), *columns, ("s", kind("blob", charset="binary")))
    forms, encoder = BothForms(info), RowEncoder(info)
    for number in (0, 63, 64, -64, -65, 2**20, 2**34, -(2**41), 2**62, 2**63 - 1, -(2**63)):
        for length in (0, 63, 64, 8191, 8192, 2**20):
            assert forms.agree(encoder.insert((number,) * 6 + (bytes(length),)))
    row = encoder.insert((1, 2, 3, 4, 5, 6, b""))
    for size in range(1, 12):
        overlong = b"\x88" + b"\x80" * (size - 1) + b"\x00"
        forms.agree(row.replace(b"\x08\x08\x08\x08", b"\x08\x08\x08" + overlong, 1))


def test_what_is_skipped_is_looked_at_as_strictly() -> None:
    """A reader that wants other columns must not step over a datum that the strict reader refuses."""
    columns = [(f"c{number}", kind("bigint")) for number in range(5)]
    info = table(("id", key("bigint")), *columns, ("s", kind("varchar")), ("t", kind("varchar")))
    readers, encoder = RowReaders(info, python_conversion), RowEncoder(info)
    split = readers.of_update((), (), ["return 'fast'"], lambda row: "slow", whole=False)
    row = encoder.update((1, *range(5), "ab", "c"), (1, *range(5), "ab", "c"))
    assert split(row) == "fast"
    three = b"\x08\x0a\x08\x06"
    assert three in row
    for datum, said in (
        (b"\x08" + b"\xff" * 9 + b"\x01", "fast"),  # 64 bits
        (b"\x08" + b"\xff" * 9 + b"\x02", "slow"),  # more
        (b"\x08" + b"\x80" * 9 + b"\x00", "fast"),
        (b"\x08" + b"\x80" * 10 + b"\x00", "slow"),
        (b"\x09\x06", "slow"),
        (b"\x00", "fast"),
    ):
        assert split(row.replace(three, b"\x08\x0a" + datum)) == said
    text = b"\x02\x04ab"
    assert split(row.replace(text, b"\x02\x05ab", 1)) == "slow"  # a negative length
    assert split(row.replace(text, b"\x02\x84\x00ab", 1)) == "fast"  # an overlong one
    assert split(row.replace(text, b"\x02\x85\x00ab", 1)) == "slow"


def test_a_column_with_another_flag_is_not_an_absent_one() -> None:
    """A reader that stops behind it would take NULL for its value."""
    info = table(("id", key("int")), ("a", kind("int")), ("b", kind("int")))
    readers = RowReaders(info, python_conversion)
    one = readers.of_insert((1,), ["return v1"], lambda row: "slow", whole=False)
    for datum, value in ((b"\x08\x06", 3), (b"\x09\x03", "slow"), (b"\x00", None)):
        assert one(b"\x08\x02" + b"\x08\x04" + datum + b"\x08\x06\x08\x02") == value
    assert one(b"\x08\x02" + b"\x08\x06\x08\x02") is None
