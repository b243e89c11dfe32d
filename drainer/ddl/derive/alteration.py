"""Alteration: one table that a DDL changes, from one tracked definition to the next. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drainer.ddl.derive.compare import Present
from drainer.ddl.derive.definition import Definition
from drainer.ddl.derive.render import Server

Route = Callable[[str, str], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Alteration:
    """`before` None: the table is new upstream. `table` is its (schema, name) downstream. `modified`: the
    job changed column types, so a column may have got a new id. `ran`: the statement as it was has run."""

    before: Definition | None
    after: Definition
    present: Present
    table: tuple[str, str]
    server: Server
    route: Route
    ran: bool = False
    modified: bool = False
    rebased: bool = False
