"""SQL plan of one table version: literals, keys and predicates from encoded rows.

Functions are generated when they are first used. A plan may be used from several threads.

Tests   tests/common/rowcodec/test_run.py
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Self

from drainer.mysql.literal.charset import Charset
from drainer.mysql.literal.collation import Collation
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.key_literal import key_literal
from drainer.mysql.literal.keys import Key, KeyList, Keys, Values, find_keys, key_list, lane_form_of
from drainer.mysql.literal.literals import NULL, ColumnSql, column_sql, integer_literal
from drainer.mysql.literal.quoting import quote_name, text_is, text_literal
from drainer.mysql.literal.row_source import ROW_NAMES, row_source
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.layout import Image
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import ENUM, JSON, STRING_TYPES, Column, Index, TableInfo

_IMAGES: Final = {image.value: image for image in Image}


@dataclass(frozen=True, slots=True)
class Written:
    """What of a table is written where rows go to; column ids.

    `unknown` columns are not there, `unwritten` ones are there and computed. `charsets`: of the columns whose
    character set is narrower than utf8mb4. `watched` columns are in a unique key there. `casts_json`: JSON is
    a type of its own there, which no text equals. `downstream`: what columns are there, for comparing.
    `alternatives`: keys of several columns are not written as a list of rows. `label`: of the table.
    """

    unknown: frozenset[int] = frozenset()
    unwritten: frozenset[int] = frozenset()
    charsets: Mapping[int, Charset] = field(default_factory=dict)
    watched: frozenset[int] = frozenset()
    casts_json: bool = False
    downstream: Mapping[int, DownstreamColumn] = field(default_factory=dict)
    alternatives: bool = False
    label: str = ""


EVERYTHING: Final = Written()


class SqlPlan:
    """Renders rows of one table version.

    Keys: `insert_key` and its like give exact identity bytes, `insert_lane_key` and its like coarse ones,
    under which everything collides that the server may take for equal. All functions raise `RowError` for a
    row that cannot be right; key functions read only the part of the row that they need.
    """

    def __init__(self, info: TableInfo, written: Written = EVERYTHING) -> None:
        described: list[ColumnSql] = []

        def convert(column: Column, place: int) -> Any:
            entry = column_sql(column, place)
            if written.casts_json and column.type.tp == JSON:
                entry = replace(entry, compare=_json_to_compare)
            charset = written.charsets.get(column.id)
            if charset is not None and entry.quoted and column.type.tp != JSON:
                entry = replace(entry, store=charset.literal, compare=charset.literal, charset=charset)
            downstream = written.downstream.get(column.id)
            if downstream is not None and column.type.tp != JSON:
                filled = f"{written.label}.{downstream.name}" if downstream.fills_null else ""
                entry = replace(entry, compare=key_literal(entry, downstream), fills_null=filled)
            described.append(entry)
            return entry.conversion

        self._readers = RowReaders(info, convert)
        self._sql = tuple(described)
        self._watched = written.watched
        self._keys: Keys = find_keys(self._readers.layout, self._sql, written.unknown)
        self._name = f"{info.name} ({info.id})"
        self.columns: tuple[Column, ...] = self._readers.layout.columns
        here = [place for place, column in enumerate(self.columns) if column.id not in written.unknown]
        self._compared = tuple(here)
        self._stored = tuple(place for place in here if self.columns[place].id not in written.unwritten)
        self.stored_columns: tuple[Column, ...] = tuple(self.columns[place] for place in self._stored)
        self.column_list: bytes = b",".join(quote_name(column.name) for column in self.stored_columns)
        self.key_columns: tuple[Column, ...] = tuple(
            self.columns[place] for place in (self._keys.row.places if self._keys.row else ())
        )
        self._alternatives = written.alternatives
        self.key_index: Index | None = self._keys.row.index if self._keys.row else None
        self._enums = tuple(place for place in self._stored if self.columns[place].type.tp == ENUM)
        self.enums: tuple[str, ...] = tuple(self.columns[place].name for place in self._enums)
        self.has_enum: bool = bool(self._enums)
        self._narrow = tuple(place for place in self._stored if self._sql[place].charset is not None)
        self.has_narrow_text: bool = bool(self._narrow)

    # -- literals ---------------------------------------------------------------------------------

    @cached_property
    def insert_literals(self) -> Callable[[bytes], bytes]:
        """`(1,'abc',NULL)` of an INSERT row, in the order of `column_list`."""
        strict = self._readers.strict
        source = self._rendering()
        return self._readers.of_insert(
            self._stored, source, lambda row: self._render(strict.insert(row)), extra=self._names
        )

    @cached_property
    def update_literals(self) -> Callable[[bytes, int], bytes]:
        """`(1,'abc',NULL)` of the new half of an UPDATE row; `split` is its offset."""
        strict = self._readers.strict
        return self._readers.of_new_half(
            self._stored,
            self._rendering(),
            lambda row, split: self._render(strict.update(row)[1]),
            extra=self._names,
        )

    @cached_property
    def _names(self) -> dict[str, Any]:
        names: dict[str, Any] = {"render": self._render, **ROW_NAMES}
        for entry in self._sql:
            names.update(entry.names)
        return names

    def _rendering(self) -> list[str]:
        """Statements that turn v0, v1, ... into a row literal; odd values go to `render`."""
        entries = [(f"v{place}", self._sql[place]) for place in self._stored]
        return row_source(entries, f"render({self._values('v', self._stored)})")

    def _render(self, values: Values) -> bytes:
        return b"(%b)" % b",".join(_stored(self._sql[place], values[place]) for place in self._stored)

    # -- the key of the row -----------------------------------------------------------------------

    @cached_property
    def insert_key(self) -> Callable[[bytes], bytes]:
        """Identity bytes of an INSERT row."""
        return self._of_image(
            Image.INSERT, self._row_key.places, self._row_key.identity, self._identity_source("v")
        )

    @cached_property
    def delete_key(self) -> Callable[[bytes], bytes]:
        """Identity bytes of a DELETE row."""
        return self._of_image(
            Image.DELETE, self._row_key.places, self._row_key.identity, self._identity_source("v")
        )

    @cached_property
    def update_keys(self) -> Callable[[bytes], tuple[bytes, bytes, int]]:
        """Old and new identity bytes of an UPDATE row, and the offset of its new half."""
        return self._of_update(self._row_key.places, self._row_key.identity, as_source=True)

    @cached_property
    def lane_key_of(self) -> Callable[[bytes], bytes] | None:
        """Coarse key of an identity, where the key is one text; None for others."""
        key = self._row_key
        return key.coarse[0] if len(key.places) == 1 and key.strings[0] else None

    @cached_property
    def insert_lane_key(self) -> Callable[[bytes], bytes]:
        """Coarse key of an INSERT row."""
        if self._is_exact:
            return self.insert_key
        return self._of_image(Image.INSERT, self._row_key.places, self._row_key.lane_form)

    @cached_property
    def delete_lane_key(self) -> Callable[[bytes], bytes]:
        """Coarse key of a DELETE row."""
        if self._is_exact:
            return self.delete_key
        return self._of_image(Image.DELETE, self._row_key.places, self._row_key.lane_form)

    @cached_property
    def update_both_keys(self) -> Callable[[bytes], tuple[tuple[bytes, bytes], tuple[bytes, bytes], int]]:
        """Identity and coarse key of the old and of the new image, and the offset of the new half.

        The old half is walked once for both kinds of key.
        """
        key = self._row_key
        return self._of_update(key.places, lambda values: (key.identity(values), key.lane_form(values)))

    def under(self, collations: Sequence[Collation | None]) -> Self:
        """The plan with its coarse keys under collations that are not binary, one a column of the key."""
        key = self._row_key
        kinds = [column.type for column in self.key_columns]
        forms = tuple(map(lane_form_of, kinds, collations or [None] * len(kinds)))
        other = copy.copy(self)
        other._keys = replace(self._keys, row=replace(key, coarse=forms))
        for cached in ("lane_key_of", "insert_lane_key", "delete_lane_key", "update_both_keys"):
            other.__dict__.pop(cached, None)
        return other

    @cached_property
    def key_literal_of_insert(self) -> Callable[[bytes], bytes]:
        """What stands for an INSERT row in a condition made by `key_list`."""
        if self.key_is_literal:
            return self.insert_key
        return self._of_image(Image.INSERT, self._row_key.places, self.key_list.literal)

    @cached_property
    def key_literal_of_delete(self) -> Callable[[bytes], bytes]:
        if self.key_is_literal:
            return self.delete_key
        return self._of_image(Image.DELETE, self._row_key.places, self.key_list.literal)

    @cached_property
    def _key_literals_of_update(self) -> Callable[[bytes], tuple[bytes, bytes, int]]:
        if self.key_is_literal:
            return self.update_keys
        return self._of_update(self._row_key.places, self.key_list.literal)

    def key_literal_of_update_old(self, row: bytes) -> bytes:
        return self._key_literals_of_update(row)[0]

    def key_literal_of_update_new(self, row: bytes) -> bytes:
        return self._key_literals_of_update(row)[1]

    @property
    def _row_key(self) -> Key:
        if self._keys.row is None:
            raise RowError(f"table {self._name} has no key")
        return self._keys.row

    @property
    def _is_exact(self) -> bool:
        """No two different identities can be one key for the server."""
        return not any(self._row_key.strings)

    @cached_property
    def key_is_literal(self) -> bool:
        """The identity of a single integer is its digits, which are also its literal."""
        places = self._row_key.places
        return len(places) == 1 and self._sql[places[0]].compare is integer_literal

    @cached_property
    def key_list(self) -> KeyList:
        """How a condition on several row keys is written."""
        return key_list(self._row_key, self._sql, alternatives=self._alternatives)

    def _identity_source(self, prefix: str) -> str:
        """Expression of the identity of an all-integer key, or of one that is a text; "" for other keys."""
        key = self._row_key
        if len(key.places) == 1 and key.strings[0]:
            keeps_blanks = key.exact[0](b" ") != b""
            return f"{prefix}{key.places[0]}" + ("" if keeps_blanks else ".rstrip(b' ')")
        if not key.integers:
            return ""
        template = ",".join("%d" for _ in key.places)
        return f'b"{template}" % (' + "".join(f"{prefix}{place}, " for place in key.places) + ")"

    def update_split(self, row: bytes) -> int:
        """Offset of the new half of an UPDATE row, of a table with or without a key."""
        return self._split_reader(row)

    @cached_property
    def _split_reader(self) -> Callable[[bytes], int]:
        strict = self._readers.strict
        return self._readers.of_update(
            (), (), ["return split"], lambda row: strict.update(row)[2], whole=False
        )

    # -- other unique keys, whole rows ------------------------------------------------------------

    def unique_values(self, image: Image | str, row: bytes) -> tuple[Any, ...] | None:
        """Exact values of an image in all columns of further unique keys; None if they are not known here."""
        if self._keys.opaque:
            return None
        values = self._image(image)(row)
        return tuple(values[place] for place in self._unique_places)

    @property
    def unique_names(self) -> list[str] | None:
        """The columns of `unique_values`; None where those are not known."""
        return None if self._keys.opaque else [self.columns[place].name for place in self._unique_places]

    @cached_property
    def _unique_places(self) -> tuple[int, ...]:
        ours = {place for key in self._keys.others for place in key.places}
        theirs = {place for place, column in enumerate(self.columns) if column.id in self._watched}
        return tuple(sorted(ours | theirs))

    def literals_of(self, image: Image | str, row: bytes) -> bytes:
        """`(1,'abc',NULL)` of any image, the slow way."""
        return self._render(self._image(image)(row))

    def literals_by_column(self, image: Image | str, row: bytes) -> dict[str, bytes | None]:
        """What to compare each column with, by its name in lower case; None for NULL."""
        values = self._image(image)(row)
        return {
            self.columns[place].name.lower(): None
            if values[place] is None
            else self._sql[place].compare(values[place])
            for place in self._compared
        }

    def full_row_predicate(self, image: Image | str, row: bytes) -> bytes:
        """`` `a`<=>1 AND `b`<=>'x' ``: exactly the rows that equal the image, byte by byte."""
        values = self._image(image)(row)
        return b" AND ".join(_equals(self._sql[place], values[place]) for place in self._compared)

    def present_predicate(self, image: Image | str, row: bytes) -> bytes:
        """The same for the columns that an old image holds; b"" if it holds all, or none."""
        image = _IMAGES[image] if isinstance(image, str) else image
        held = self._readers.strict.present(row if image is Image.DELETE else row[: self.update_split(row)])
        here = [place for place in self._compared if place in held]
        if len(here) == len(self._compared):
            return b""
        return b" AND ".join(_equals(self._sql[place], held[place]) for place in here)

    def assignments(self, image: Image | str, row: bytes) -> bytes:
        """`` `a`=1,`b`='x' ``: what makes any row the image."""
        values = self._image(image)(row)
        return b",".join(_assigned(self._sql[place], values[place]) for place in self._stored)

    def has_enum_zero(self, image: Image | str, row: bytes) -> bool:
        """Whether an ENUM holds no element, which strict mode refuses."""
        values = self._image(image)(row)
        return any(values[place] == 0 for place in self._enums)

    def foreign_text(self, image: Image | str, row: bytes) -> list[str]:
        """Columns whose character set downstream does not have the text of this image."""
        values = self._image(image)(row)
        names = []
        for place in self._narrow:
            value, charset = values[place], self._sql[place].charset
            if value is not None and charset is not None and not charset.holds(value):
                names.append(self.columns[place].name)
        return names

    def _image(self, image: Image | str) -> Callable[[bytes], Values]:
        image = _IMAGES[image] if isinstance(image, str) else image
        if image is Image.INSERT:
            return self._insert_values
        if image is Image.DELETE:
            return self._delete_values
        if image is Image.OLD:
            return lambda row: self._update_values(row)[0]
        return lambda row: self._update_values(row)[1]

    @cached_property
    def _insert_values(self) -> Callable[[bytes], Values]:
        return self._of_image(Image.INSERT, self._readers.all_places, lambda values: values, whole=True)

    @cached_property
    def _delete_values(self) -> Callable[[bytes], Values]:
        return self._of_image(Image.DELETE, self._readers.all_places, lambda values: values, whole=True)

    @cached_property
    def _update_values(self) -> Callable[[bytes], tuple[Values, Values, int]]:
        return self._of_update(self._readers.all_places, lambda values: values, whole=True)

    # -- generated functions ----------------------------------------------------------------------

    def _of_image(
        self,
        image: Image,
        places: Collection[int],
        finish: Callable[[Values], Any],
        source: str = "",
        *,
        whole: bool = False,
    ) -> Callable[..., Any]:
        """Of an INSERT or DELETE row."""
        readers, is_insert = self._readers, image is Image.INSERT
        strict = readers.strict.insert if is_insert else readers.strict.delete
        make = readers.of_insert if is_insert else readers.of_delete

        def slow(row: bytes) -> Any:
            return finish(strict(row))

        result = self._finishing(places, source)
        return make(places, result, slow, whole=whole, extra={"finish": finish})

    def _of_update(
        self,
        places: Collection[int],
        finish: Callable[[Values], Any],
        *,
        as_source: bool = False,
        whole: bool = False,
    ) -> Callable[..., Any]:
        strict = self._readers.strict

        def slow(row: bytes) -> Any:
            old, new, split = strict.update(row)
            return finish(old), finish(new), split

        old = (as_source and self._identity_source("o")) or f"finish({self._values('o', places)})"
        new = (as_source and self._identity_source("v")) or f"finish({self._values('v', places)})"
        nulls = [] if whole else ["if nulls: return slow(b)"]
        return self._readers.of_update(
            places,
            places,
            [*nulls, f"return {old}, {new}, split"],
            slow,
            whole=whole,
            extra={"finish": finish},
        )

    def _finishing(self, places: Collection[int], source: str) -> list[str]:
        result = source or f"finish({self._values('v', places)})"
        if len(places) == len(self.columns) and not source:
            return [f"return {result}"]
        return ["if nulls: return slow(b)", f"return {result}"]

    def _values(self, prefix: str, places: Collection[int]) -> str:
        """A tuple of raw values with None at the places that were not read."""
        chosen = set(places)
        parts = (f"{prefix}{place}" if place in chosen else "None" for place in self._readers.all_places)
        return "(" + "".join(f"{part}, " for part in parts) + ")"


def compile_sql(info: TableInfo, *, written: Written = EVERYTHING, kind: type[SqlPlan] = SqlPlan) -> SqlPlan:
    """Plan for a table version; `kind` says what its rows are."""
    return kind(info, written)


# -- conditions on columns of a table without key, and assignments ------------------------------------------


def _json_to_compare(raw: bytes) -> bytes:
    return b"CAST(%b AS JSON)" % text_literal(raw)


def _equals(entry: ColumnSql, value: Any) -> bytes:
    """True for exactly this value, byte by byte."""
    name = quote_name(entry.column.name)
    if value is None:
        return b"%b IS NULL" % name
    if entry.charset is not None:
        return entry.charset.predicate(name, value)
    kind = entry.column.type
    if kind.tp in STRING_TYPES and not kind.is_binary_string:
        return text_is(name, entry.store(value))
    return b"%b<=>%b" % (name, entry.compare(value))


def _assigned(entry: ColumnSql, value: Any) -> bytes:
    return b"%b=%b" % (quote_name(entry.column.name), _stored(entry, value))


def _stored(entry: ColumnSql, value: Any) -> bytes:
    if value is not None:
        return entry.store(value)
    if entry.fills_null:
        raise DownstreamError(
            f"a row has NULL in {entry.fills_null}, which is AUTO_INCREMENT or a TIMESTAMP NOT NULL"
            " downstream: a NULL becomes another value there",
            hint="let the column hold NULL there, and not be AUTO_INCREMENT; then `binlogctl ddl retry JOB`",
        )
    return NULL
