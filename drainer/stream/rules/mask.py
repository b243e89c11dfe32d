"""Mask: what stands downstream in place of a column's values (`mask` of `[[syncer.row-rule]]`).

Holds  NULL stays NULL. Rows stay apart: a column of a key, or of a unique index, takes `hash` alone (or null,
       where it may be NULL and rows are not found by it). The same value has the same mask everywhere
Never  shows the salt: it is read from a file, and is in no error, log or stored rule

    "null"            NULL
    "hash"            32 hexadecimal digits: HMAC-SHA-256 of the value under the salt
    "keep-last 4"     `*` for every character but the last 4; texts that are no longer are hidden whole
    { value = "x" }   always this value

Tests  tests/drainer/stream/translate/test_row_edit.py
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.datum import NULL_DATUM, read_bytes
from tidb_binlog.rowcodec.put import put_bytes, put_value, string_bytes
from tidb_binlog.table_info import (
    FLAG_PRIMARY,
    STRING_KINDS,
    WHOLE_COLUMN,
    Column,
    ColumnKind,
    Index,
    TableInfo,
)

HASH_CHARACTERS: Final = 32
_KEEP_LAST: Final = re.compile(r"keep-last (\d{1,4})")
_NAME: Final = re.compile(r"`([^`]+)`|([^\W\d][\w$]*)")
Exchange = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Mask:
    """`how` is null, hash, keep-last or value; `argument` the number of characters, or the value."""

    label: str
    column: str
    how: str
    argument: Any = None
    salt: bytes = b""

    @classmethod
    def of(cls, label: str, column: str, given: Any, salt: Callable[[], bytes]) -> Mask:
        """Raises `ConfigError` for what is no mask. `salt` is asked if it is needed."""
        place = f"{label}: mask of {column}"
        if isinstance(given, str):
            text = given.strip().lower()
            if text == "null":
                return cls(place, column, "null")
            if text == "hash":
                return cls(place, column, "hash", salt=salt())
            kept = _KEEP_LAST.fullmatch(text)
            if kept:
                return cls(place, column, "keep-last", int(kept[1]))
        elif _is_fixed(given):
            return cls(place, column, "value", given["value"])
        raise ConfigError(
            f"{place} is {given!r}", hint='"null", "hash", "keep-last 4", or { value = "..." } are masks'
        )

    @property
    def salt_digest(self) -> str:
        """Tells salts apart, and shows none; "" without one."""
        return hmac.digest(self.salt, b"row-rule", hashlib.sha256).hex()[:16] if self.salt else ""

    def exchange(self, column: Column, info: TableInfo, table: str) -> Exchange:
        """From the datum of a column to that of its mask. Raises `ConfigError` as said above."""
        self._check_identity(column, info, table)
        kind = column.type
        if self.how == "null":
            if kind.not_null:
                raise self._refused(table, "the column is NOT NULL", 'take { value = "..." } or "hash"')
            return lambda datum: NULL_DATUM
        if self.how == "value":
            fixed = self._fixed(column, table)
            return lambda datum: fixed
        if kind.kind not in STRING_KINDS or (self.how == "keep-last" and kind.kind is ColumnKind.BINARY):
            expected = "a text" if self.how == "keep-last" else "a text or binary string"
            raise self._refused(
                table, f"the column is not {expected}", 'take "null", or { value = ... } of its type'
            )
        if self.how == "hash":
            if 0 <= kind.flen < HASH_CHARACTERS:
                raise self._refused(
                    table,
                    f"a hash has {HASH_CHARACTERS} characters, the column has room for {kind.flen}",
                    'take another mask, or widen the column: "null", "keep-last", { value = ... }',
                )
            return self._hash(column)
        return _keep_last(int(self.argument))

    def _hash(self, column: Column) -> Exchange:
        keyed, kind = hmac.new(self.salt, digestmod=hashlib.sha256), column.type

        def exchange(datum: bytes) -> bytes:
            mac = keyed.copy()
            mac.update(read_bytes(datum, 0)[0])
            return put_bytes(string_bytes(kind, mac.hexdigest()[:HASH_CHARACTERS]))

        return exchange

    def _fixed(self, column: Column, table: str) -> bytes:
        value, kind = self.argument, column.type
        if isinstance(value, str) and kind.kind in STRING_KINDS and 0 <= kind.flen < len(value):
            raise self._refused(
                table, f"the value has {len(value)} characters, the column {kind.flen}", "shorten it"
            )
        try:
            return put_value(kind, value)
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            raise self._refused(
                table, f"the value is none of the column's: {error}", "write one of its type"
            ) from None

    def _check_identity(self, column: Column, info: TableInfo, table: str) -> None:
        """Two rows may not become one."""
        for index in info.indexes:
            if not (index.unique or index.primary):
                continue
            part = next((part for part in index.columns if part.offset == column.offset), None)
            if part is None:
                if column.name.lower() in _generated_in(index, info):
                    raise self._refused(
                        table, f"a generated column of the unique index {index.name} is made of it", _KEY_HINT
                    )
            elif self.how == "hash":
                if part.length != WHOLE_COLUMN and part.length < HASH_CHARACTERS:
                    raise self._refused(
                        table,
                        f"the unique index {index.name} holds its first {part.length} characters only",
                        "leave the column out with a column-rule, or widen the index",
                    )
            elif index.primary or self.how != "null":
                what = "the primary key" if index.primary else f"the unique index {index.name}"
                raise self._refused(table, f"it is a column of {what}", _KEY_HINT)
        if column.type.flag & FLAG_PRIMARY and self.how != "hash":
            raise self._refused(table, "it is a column of the primary key", _KEY_HINT)

    def _refused(self, table: str, why: str, hint: str) -> ConfigError:
        how = f"keep-last {self.argument}" if self.how == "keep-last" else self.how
        return ConfigError(
            f'{self.label}: {table}.{self.column} cannot have the mask "{how}": {why}', hint=hint
        )


_KEY_HINT: Final = 'rows would become one: take "hash", which keeps different values different'


def _generated_in(index: Index, info: TableInfo) -> set[str]:
    """Names in the expressions of an index's generated columns, in lower case."""
    offsets = {part.offset for part in index.columns}
    return {
        name.lower()
        for column in info.columns
        if column.generated and column.offset in offsets
        for name in names_in(column.generated)
    }


def names_in(expression: str) -> list[str]:
    """Everything in the text of a generated column that may be the name of another one."""
    return [quoted or plain for quoted, plain in _NAME.findall(expression)]


def _is_fixed(given: Any) -> bool:
    """Dates are given as texts: rules are stored as JSON."""
    return (
        isinstance(given, Mapping)
        and list(given) == ["value"]
        and isinstance(given["value"], str | int | float)
    )


def _keep_last(count: int) -> Exchange:
    def exchange(datum: bytes) -> bytes:
        text = read_bytes(datum, 0)[0].decode("utf-8", "replace")
        shown = text[len(text) - count :] if 0 < count < len(text) else ""
        return put_bytes(("*" * (len(text) - len(shown)) + shown).encode())

    return exchange
