"""What decides a row's partition is the same for keys that the upstream takes for one, in every format."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from drainer.formats.messages.message import AVRO, FORMATS, FormatOptions, Message, MessageFormat, open_format
from drainer.txn import DELETE, INSERT
from tests.common.rowcodec.tables import binary, index, key, kind, table
from tests.drainer.formats.messages.changes import transaction, version
from tidb_binlog.table_info import TableInfo


class Numbered:
    """A registry that gives each schema the same number."""

    def register(self, subject: str, schema: str) -> int:
        return 7


def opened(name: str) -> MessageFormat:
    return open_format(name, FormatOptions(registry=Numbered() if name == AVRO else None))


def text_table(collate: str, length: int = -1) -> TableInfo:
    of = key("varchar", flen=20, collate=collate)
    return table(
        ("k", of), ("v", kind("int")), handle="common", indexes=(index(1, ("k", 0, length), primary=True),)
    )


def spread(form: MessageFormat, info: TableInfo, *values: Any, event: int = INSERT) -> bytes | None:
    (message,) = form.rows(transaction(version(info), (event, [*values, 1])))
    assert message.key is not None
    return message.spread


@pytest.mark.parametrize("name", FORMATS)
def test_keys_that_are_one_key_upstream_are_spread_alike(name: str) -> None:
    """Pairs as TiDB's collations have them; None is the table's own partition."""
    form = opened(name)
    for collate in ("utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci"):
        found = {spread(form, text_table(collate), text) for text in ("key0", "KeY0", "kéy0")}
        assert found == {None}, collate
    padded = text_table("utf8mb4_bin")
    for text in ("a", "", "ä", '"', "\\", 'x" y', "a" * 19):
        blanks = {spread(form, padded, text + " " * count) for count in range(20 - len(text))}
        assert len(blanks) == 1, text
        assert None not in blanks
    apart = [spread(form, padded, text) for text in ("a", "A", "b", " a", "a b", "ab", "a\t")]
    assert len(set(apart)) == len(apart)
    assert spread(form, text_table("utf8mb4_bin", 3), "abcd") is None, "a prefix is all that tells keys apart"


@pytest.mark.parametrize("name", FORMATS)
def test_keys_of_exact_columns_are_spread_by_their_bytes(name: str) -> None:
    form = opened(name)
    two = table(
        ("k", key("int")),
        ("b", binary("varchar", flen=9, not_null=True)),
        ("v", kind("int")),
        handle="common",
        indexes=(index(1, ("k", 0), ("b", 1), primary=True),),
    )
    keys = list(itertools.product((1, 2), (b"a", b"a ", b"A")))
    found = [spread(form, two, *values) for values in keys]
    assert None not in found
    assert len(set(found)) == len(keys)
    assert [spread(form, two, *values, event=DELETE) for values in keys] == found


def test_a_row_without_a_key_goes_where_its_table_goes() -> None:
    keyless = version(table(("a", kind("int")), handle="rowid"))
    for name in set(FORMATS) - {AVRO}:
        (message,) = opened(name).rows(transaction(keyless, (INSERT, [1])))
        assert isinstance(message, Message)
        assert (message.key, message.spread) == (None, None)
