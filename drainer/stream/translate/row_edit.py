"""Row edit: what row rules make of the rows of one table version.

In     encoded rows of one table in execution order, one at a time; the rules of the table
Out    the row with its kind, or None where it does not replicate
Holds  an UPDATE that leaves the rows that replicate is a DELETE, one that enters them an INSERT. Rows that no
       rule changes are the same bytes; in others only the datums that change are written anew
Why    conditions see what upstream has; then columns are masked; then functions see what masks left

    condition was, is     replicates as
    -----------------     -------------
    TRUE, TRUE            UPDATE
    TRUE, else            DELETE of the old half
    else, TRUE            INSERT of the new half
    else, else            nothing

Where earlier rules may have let the row before the change through, it may be downstream, and "else" is not
enough to leave it alone: such a DELETE goes out, `else, TRUE` is an UPDATE, and `else, else` a DELETE of the
old half. Of a table with withheld rows all these may be about a row that is not there.

A condition with `before.` or `after.` is about the change: the row replicates as it is, or not at all.

A row is cut at its masked datums in one pass. What is not as the reader expects, a key in front of an
INSERT, and generated columns go the long way, through all pairs of the row. Of a row older than its column
the default that stands for the column is masked, too; NULL stays NULL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from drainer.changes.model import Row
from drainer.changes.row_reader import RowPlan, key_names
from drainer.mysql.mark import is_mark_table
from drainer.stream.rules.mask import Mask, names_in
from drainer.stream.rules.python_rule import PythonRule
from drainer.stream.rules.row_rule import RowRule
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.where.compiler import RowCondition, missing_column
from drainer.stream.rules.where.expression import Condition
from drainer.stream.schema.tracker import is_system_schema
from drainer.txn import DELETE, INSERT, TableVersion
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import NULL_DATUM, skip
from tidb_binlog.rowcodec.images import Exchange, Images
from tidb_binlog.rowcodec.layout import make_layout
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.put import put_value
from tidb_binlog.table_info import Column, TableInfo
from tidb_binlog.tso import Ts

Masked = Callable[[bytes], bytes]


def _span(b: bytes, i: int) -> tuple[tuple[int, int], int]:
    end = skip(b, i)
    return (i, end), end


class RowMasks:
    """`masked[kind](row)`: the row with the masked datums, all other bytes as they were. `generated`: ids of
    generated columns that were made of masked ones; they are NULL, and servers make them again."""

    def __init__(
        self, info: TableInfo, images: Images, exchanges: Mapping[int, Exchange], generated: Collection[int]
    ) -> None:
        self._info, self._images = info, images
        self._cut = {} if generated else dict(exchanges)
        self._exchanges = {**exchanges, **dict.fromkeys(generated, lambda _: NULL_DATUM)}

    @cached_property
    def masked(self) -> tuple[Masked, Masked, Masked]:
        """Made when the first row comes: rules may be about thousands of tables."""
        exchanges = self._cut
        if not exchanges:
            return self._insert, self._update, self._delete
        readers = RowReaders(self._info, _spans)
        columns = readers.layout.columns
        places = [place for place, column in enumerate(columns) if column.id in exchanges]
        extra = {f"mask{place}": exchanges[columns[place].id] for place in places}
        once, twice = _lines("v", places), [*_lines("o", places), *_lines("v", places)]
        of_insert: Masked = self._insert
        if self._images.handle_ids.isdisjoint(exchanges):
            of_insert = readers.of_insert(places, _joined(once), self._insert, extra=extra)
        return (
            of_insert,
            readers.of_update(places, places, _joined(twice), self._update, extra=extra),
            readers.of_delete(places, _joined(once), self._delete, extra=extra),
        )

    def _insert(self, row: bytes) -> bytes:
        return self._images.exchanged_insert(row, self._exchanges)

    def _delete(self, row: bytes) -> bytes:
        return self._images.exchanged_image(row, self._exchanges)

    def _update(self, row: bytes) -> bytes:
        images, split = self._images, self._images.split(row)
        old = images.exchanged_image(row, self._exchanges, 0, split)
        return old + images.exchanged_image(row, self._exchanges, split)


def _spans(column: Column, place: int) -> Conversion:
    return Conversion(Shape.PLACE, "", _span)


def _lines(prefix: str, places: Collection[int]) -> list[str]:
    lines = []
    for place in places:
        local = f"{prefix}{place}"
        lines.append(f"if {local} is not None:")
        lines.append(f"    i, j = {local}")
        lines.append(f"    parts += (b[at:i], mask{place}(b[i:j]))")
        lines.append("    at = j")
    return lines


def _joined(lines: list[str]) -> list[str]:
    return ["parts, at = [], 0", *lines, "parts.append(b[at:])", 'return b"".join(parts)']


Event = tuple[int, bytes]


class RowEdit:
    """The rules of one table version. Raises `ConfigError` for a column that it lacks, and for masks that a
    column cannot have."""

    def __init__(
        self, rules: Sequence[RowRule], table: TableVersion, earlier: Iterable[Sequence[RowRule]] = ()
    ) -> None:
        name, info = f"{table.schema}.{table.name}", table.info
        conditions = [rule.where.of(info, name) for rule in rules if rule.where is not None]
        self._sets = [condition for condition in conditions if not condition.is_about_change]
        self._changes = [condition for condition in conditions if condition.is_about_change]
        self._earlier = _earlier(earlier, rules, info, name)
        self._images = Images(info)
        masks = [mask for rule in rules for mask in rule.masks]
        self._masks = _masks_of(masks, info, name, self._images) if masks else None
        functions = [rule.python for rule in rules if rule.python is not None]
        self._functions = [_Function(python, table, self._images) for python in functions]

    def event(self, kind: int, row: bytes, commit_ts: Ts) -> Event | None:
        """What becomes of one row. Raises `RowError`, and `ConfigError` for a function that failed."""
        if kind == INSERT:
            for condition in self._changes:
                if not condition.insert(row):
                    return None
            for condition in self._sets:
                if not condition.insert(row):
                    return None
        elif kind == DELETE:
            for condition in self._changes:
                if not condition.delete(row):
                    return None
            for condition in self._sets:
                if not condition.delete(row):
                    if not self._went_out(lambda held: held.delete(row)):
                        return None
                    break
        else:
            was = now = True
            split = 0
            for condition in self._changes:
                if not condition.update(row)[0]:
                    return None
            for condition in self._sets:
                before, after, split = condition.update(row)
                was, now = was and before, now and after
            if not was:
                was = self._went_out(lambda held: held.update(row)[0])
            if not was:
                if not now:
                    return None
                kind, row = INSERT, self._images.insert_of(row, split)
            elif not now:
                kind, row = DELETE, row[:split]
        if self._masks is not None:
            row = self._masks.masked[kind](row)
        for function in self._functions:
            passed = function.row(kind, row, commit_ts)
            if passed is None:
                return None
            row = passed
        return kind, row

    def _went_out(self, held: Callable[[RowCondition], bool]) -> bool:
        """Whether a row may have been let through by an earlier set of rules."""
        return any(all(map(held, conditions)) for conditions in self._earlier)


def row_edit(rules: Rules, table: TableVersion) -> RowEdit | None:
    """What the rules of a table come to, None without any. Raises `ConfigError`."""
    if rules.rows.is_empty or is_system_schema(table.schema) or is_mark_table(table.schema, table.name):
        return None
    if table.info.is_view or table.info.is_sequence:
        return None
    of_table = rules.rows.of_table(table.schema, table.name)
    if not of_table:
        return None
    # Without a key a row is found by all its values, which another row may have behind a mask.
    earlier = rules.rows.earlier_of(table.schema, table.name)
    return RowEdit(of_table, table, earlier if earlier and key_names(table.info, frozenset()) else ())


def _earlier(
    earlier: Iterable[Sequence[RowRule]], rules: Sequence[RowRule], info: TableInfo, table: str
) -> list[list[RowCondition]]:
    """What rows met that earlier rules let through. What cannot be said of a row now, or only of a change,
    is taken for met."""
    conditions_of: list[list[RowCondition]] = []
    seen = [_conditions(rules)]
    for earlier_rules in earlier:
        if _conditions(earlier_rules) in seen:
            continue
        seen.append(_conditions(earlier_rules))
        conditions = []
        for rule in earlier_rules:
            with contextlib.suppress(ConfigError):
                if rule.where is not None:
                    conditions.append(rule.where.of(info, table))
        conditions_of.append([condition for condition in conditions if not condition.is_about_change])
    return conditions_of


def _conditions(rules: Iterable[RowRule]) -> list[Condition | None]:
    return [None if rule.where is None else rule.where.condition for rule in rules if rule.withholds]


def _column(name: str, label: str, info: TableInfo, table: str) -> Column:
    for column in info.columns:
        if column.is_writable and column.name.lower() == name.lower():
            return column
    raise missing_column(label, name, table, info)


def _masks_of(masks: Sequence[Mask], info: TableInfo, table: str, images: Images) -> RowMasks:
    exchanges: dict[int, Exchange] = {}
    labels: dict[int, str] = {}
    for mask in masks:
        column = _column(mask.column, mask.label, info, table)
        if column.id in exchanges:
            raise ConfigError(
                f"{table}.{column.name} has two masks: {labels[column.id]} and {mask.label}",
                hint="remove one of them",
            )
        labels[column.id] = mask.label
        exchanges[column.id] = mask.exchange(column, info, table)
    hidden = {column.name.lower() for column in info.columns if column.id in exchanges}
    generated = [
        column.id
        for column in info.columns
        if column.generated and hidden & {name.lower() for name in names_in(column.generated)}
    ]
    return RowMasks(info, images, exchanges, generated)


class _Function:
    """A function of the user's: rows are read for it, and what it changed is written."""

    def __init__(self, python: PythonRule, table: TableVersion, images: Images) -> None:
        self._python, self._images = python, images
        self._version = TableVersion(table.info, table.schema, table.name, table.version)
        layout = make_layout(table.info, frozenset())
        self._columns = {column.name: column for column in layout.columns}

    @cached_property
    def _read(self) -> tuple[Callable[[bytes], Row], ...]:
        """Made when the first row comes, as masks are."""
        return RowPlan(self._version).read

    def row(self, kind: int, row: bytes, commit_ts: Ts) -> bytes | None:
        """The row as the function left it, None without it."""
        given = self._read[kind](row)
        old, new = _copy(given.before), _copy(given.after)
        result = self._python.apply(given, commit_ts)
        if result is None:
            return None
        before = self._changed(old, result.before, result, commit_ts)
        after = self._changed(new, result.after, result, commit_ts)
        if not before and not after:
            return row
        images = self._images
        if kind == INSERT:
            return images.exchanged_insert(row, after, always=True)
        if kind == DELETE:
            return images.exchanged_image(row, before, always=True)
        split = images.split(row)
        return images.exchanged_image(row, before, 0, split, always=True) + images.exchanged_image(
            row, after, split, always=True
        )

    def _changed(
        self, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, row: Row, commit_ts: Ts
    ) -> dict[int, Exchange]:
        """Columns with other values than before, and their datums."""
        if old is None or new is None or old == new:
            return {}
        exchanges = {}
        table = str(row.table)
        if new.keys() != old.keys():
            names = ", ".join(sorted(map(str, new.keys() ^ old.keys())))
            raise self._python.failed(f"gave a row with other columns: {names}", table, commit_ts)
        for name, value in new.items():
            if value is old[name] or (value == old[name] and type(value) is type(old[name])):
                continue
            column = self._columns[name]
            exchanges[column.id] = _always(self._datum(column, value, table, commit_ts))
        return exchanges

    def _datum(self, column: Column, value: Any, table: str, commit_ts: Ts) -> bytes:
        if value is None and column.type.not_null:
            raise self._python.failed(f"gave None for {column.name}, which is NOT NULL", table, commit_ts)
        try:
            return put_value(column.type, value)
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            what = f"gave a {type(value).__name__} for {column.name} that does not fit: {error}"
            raise self._python.failed(what, table, commit_ts) from None


def _copy(image: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if image is None else dict(image)


def _always(datum: bytes) -> Callable[[bytes], bytes]:
    return lambda _: datum
