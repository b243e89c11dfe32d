"""Frozen schema: what a DDL that waits needs of the tracked schema and the routes, as they were then.

Tests  tests/drainer/quarantine/test_controller.py
"""

from __future__ import annotations

from typing import Protocol

from drainer.ddl.derive.values import Route
from drainer.txn import Ddl


class Schema(Protocol):
    """What a DDL needs of the tracked schema after it."""

    def database_collation(self, schema: str) -> tuple[str, str] | None: ...


class Frozen:
    """The tracked schema as it was after one DDL, and where tables went then."""

    def __init__(self, schema: Schema, ddl: Ddl, route: Route) -> None:
        self.route = route
        names = {ddl.schema, *(name for name, _ in ddl.tables)}
        self._collations = {name.lower(): schema.database_collation(name) for name in names}

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return self._collations.get(schema.lower())
