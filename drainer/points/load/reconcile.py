"""Reconcile: what becomes of each table downstream when a load begins, or goes on.

Out    tables to keep as they are, to begin with, to give up; or why the load is refused
Holds  nothing that the load did not put there goes unless REPLACE says so. Tables with one target share its
       fate: what one of them began anew, all do

    stored             upstream now             at the same T   at another T
    nothing            there                    begins          begins
    the same digest    keyed, alone             goes on         goes on: chunks are compared
    the same digest    keyless, or not alone    goes on         begins anew, where rows may be there
    another digest     there                    -               begins anew
    any                not there                -               is given up

Why    at another T rows may be gone or others. Where a key says which they are, a part of a table is set
       right by itself; elsewhere all of it is copied again
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum

from drainer.checkpoint.load_progress import LoadedTable, TableState
from drainer.points.load.contents import Contents, Source
from tidb_binlog.errors import Rejected
from tidb_binlog.late_dataclass import dataclass

Name = tuple[str, str]
_SHOWN = 5


class Mode(Enum):
    """What may be downstream in tables that are loaded: NEW nothing, REPLACE anything (it goes), APPEND rows
    that stay."""

    NEW = "new"
    REPLACE = "replace"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class There:
    """A table downstream. `kind` as `ddl_effect` has it; `has_rows`: at least one."""

    kind: str
    has_rows: bool = False


@dataclass(frozen=True, slots=True)
class Reconciled:
    """`given_up`: what is stored of them goes, and what the load made of them downstream."""

    kept: tuple[tuple[Source, LoadedTable], ...] = ()
    begun: tuple[tuple[Source, LoadedTable], ...] = ()
    given_up: tuple[LoadedTable, ...] = ()

    @property
    def all(self) -> list[tuple[Source, LoadedTable]]:
        return sorted((*self.kept, *self.begun), key=lambda pair: pair[1].number)


def reconcile(
    contents: Contents,
    stored: Sequence[LoadedTable],
    present: Mapping[Name, There],
    mode: Mode,
    *,
    same_ts: bool,
    has_rows: Collection[int],
    keyless: Collection[Name],
) -> Reconciled:
    """`present`: of all targets. `has_rows`: numbers of tables of which rows were copied. `keyless`: names
    upstream of tables whose rows no key tells apart.

    Raises `Rejected`.
    """
    by_source = {table.source: table for table in stored}
    sources = contents.all
    groups: dict[Name, list[Source]] = {}
    for source in sources:
        groups.setdefault(source.target, []).append(source)
    source_names = {source.name for source in sources}
    given_up = [table for table in stored if table.source not in source_names]
    shrunk = {table.target for table in given_up}
    kept: list[tuple[Source, LoadedTable]] = []
    begun: list[tuple[Source, LoadedTable]] = []
    number = max((table.number for table in stored), default=-1) + 1
    refusals = _Refusals(mode, has_rows)
    safe = {table.number for table in stored if same_ts or table.number not in has_rows}
    for target, group in groups.items():
        past = [by_source.get(source.name) for source in group]
        if target not in shrunk and _goes_on(group, past, mode, safe, keyless):
            kept += [(source, table) for source, table in zip(group, past, strict=True) if table is not None]
            continue
        ours = [table for table in stored if table.target == target]
        is_new = refusals.is_new(group, ours, present.get(target), keyless)
        for source in group:
            earlier = by_source.get(source.name)
            if earlier is not None:
                given_up.append(earlier)
            begun.append(
                (source, LoadedTable(number, source.name, target, source.digest, is_new, TableState.PLANNED))
            )
            number += 1
    refusals.check()
    return Reconciled(tuple(kept), tuple(begun), tuple(given_up))


def _goes_on(
    group: Sequence[Source],
    past: Sequence[LoadedTable | None],
    mode: Mode,
    safe: Collection[int],
    keyless: Collection[Name],
) -> bool:
    """Whether what is stored of a target still counts. `safe`: all rows of these are as they should be."""
    for source, table in zip(group, past, strict=True):
        if table is None or table.definition != source.digest or table.target != source.target:
            return False
        apart = len(group) == 1 and source.name not in keyless and (table.is_new or mode is not Mode.APPEND)
        if table.number not in safe and not apart:
            return False
    return True


class _Refusals:
    """Gathered, so that one run says all of them."""

    def __init__(self, mode: Mode, has_rows: Collection[int]) -> None:
        self._mode = mode
        self._copied = has_rows
        self._has_rows: list[Name] = []
        self._not_there: list[Name] = []
        self._cannot_append: list[Name] = []
        self._other_kind: list[Name] = []

    def is_new(
        self,
        group: Sequence[Source],
        ours: Sequence[LoadedTable],
        present: There | None,
        keyless: Collection[Name],
    ) -> bool:
        """Whether the load makes the table itself, and may drop what is there."""
        target, creates = group[0].target, group[0].creates
        if any(table.is_new for table in ours):
            return True
        if present is None:
            if not creates:
                self._not_there.append(target)
            return True
        if present.kind != group[0].kind and self._mode is not Mode.REPLACE:
            self._other_kind.append(target)
        if self._mode is Mode.REPLACE:
            return creates
        rows_are_ours = any(table.number in self._copied for table in ours)
        if self._mode is Mode.APPEND:
            if rows_are_ours or (present.has_rows and any(source.name in keyless for source in group)):
                self._cannot_append.append(target)
        elif present.has_rows and not rows_are_ours:
            self._has_rows.append(target)
        return False

    def check(self) -> None:
        if self._has_rows:
            raise Rejected(
                f"the downstream has rows already in {_names(self._has_rows)}",
                hint="-replace removes what is there and loads anew, -append adds to it; or leave these"
                " tables out (ignore-table)",
            )
        if self._other_kind:
            raise Rejected(
                f"the downstream has something else under the names of {_names(self._other_kind)}",
                hint="remove it there, or use -replace",
            )
        if self._not_there:
            raise Rejected(
                f"{_names(self._not_there)} is not there downstream, and the rules do not let DDL run there",
                hint="create it there, or leave it out (ignore-table)",
            )
        if self._cannot_append:
            raise Rejected(
                f"rows cannot be added to {_names(self._cannot_append)}: no key tells those that are"
                " there from those that were begun to be loaded",
                hint="empty it there, or use -replace",
            )


def _names(names: Iterable[Name]) -> str:
    listed = [".".join(name) for name in names]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
