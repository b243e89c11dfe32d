"""Lane basis table: what lane positions belong to, stored beside them.

    lane_basis   cluster_id, fold, epoch, name, definition

The row of fold 0 is for all tables: its `definition` has the version of the hash and the rules
(`lane_basis`, `rule_history`). Every other row is a downstream table (`name` is for people) with its spread.

Holds   the row of fold 0 carries the epoch of the drainer that wrote it, raised with the lanes' epoch in one
        transaction. Another epoch there than the lanes have says that a release which knows nothing of this
        table has moved the lanes since: what is stored is worth nothing then
Tests   tests/drainer/checkpoint/test_lane_basis_mariadb.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from drainer.checkpoint import lane_basis
from drainer.checkpoint.lane_basis import StoredBasis, TableSpread
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NO_SUCH_DATABASE, NO_SUCH_TABLE, SessionError
from drainer.mysql.literal.quoting import qualified, string_literal

_HEADER: Final = 0
_STATEMENT_ROWS: Final = 1000


class LaneBasisTable:
    """Statements on one cluster's rows. Not thread-safe."""

    def __init__(self, schema: str, cluster_id: int) -> None:
        self._name = qualified(schema, "lane_basis")
        self._cluster_id = cluster_id

    @property
    def create_statement(self) -> bytes:
        """Writes the statement that makes the table."""
        return (
            b"CREATE TABLE IF NOT EXISTS " + self._name + b" (cluster_id BIGINT UNSIGNED NOT NULL,"
            b" fold BIGINT NOT NULL, epoch BIGINT NOT NULL, name TEXT CHARACTER SET utf8mb4 NOT NULL,"
            b" definition MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL, PRIMARY KEY (cluster_id, fold))"
            b" ENGINE=InnoDB"
        )

    def ensure(self, connection: Connection) -> None:
        """Make the table where a release without it has made the others; that ends the transaction."""
        for statement in (b"SELECT fold FROM %s LIMIT 0" % self._name, self.create_statement):
            try:
                connection.run(statement)
                return
            except SessionError as error:
                missing = error.number
                if missing not in (NO_SUCH_TABLE, NO_SUCH_DATABASE):
                    raise
                if missing == NO_SUCH_DATABASE:  # all of it is made later
                    return

    def load(self, connection: Connection, epoch: int) -> StoredBasis | None:
        """What lanes with this epoch stand on; None if that is not stored. Raises `Corruption`."""
        stored = connection.rows(
            b"SELECT fold, epoch, definition FROM %s WHERE cluster_id=%d" % (self._name, self._cluster_id),
        )
        rows = {int(fold): (int(of_epoch), str(text)) for fold, of_epoch, text in stored}
        of_epoch, header = rows.pop(_HEADER, (0, ""))
        if of_epoch != epoch:
            return None
        return StoredBasis.from_json(header, {fold: text for fold, (_, text) in rows.items()})

    def begin(self, connection: Connection, epoch: int, stored: StoredBasis | None, *, drained: bool) -> None:
        """What is `stored`, if it still counts, belongs to this epoch and this release from now on."""
        if drained or stored is None:
            self.clear(connection, tables_only=stored is not None)
        if stored is not None:
            self.put_header(connection, epoch, stored.rules)

    def clear(self, connection: Connection, *, tables_only: bool = False) -> None:
        """All lanes stand at one position, or what their positions belong to is not known."""
        tables = b" AND fold<>%d" % _HEADER if tables_only else b""
        connection.run(b"DELETE FROM %s WHERE cluster_id=%d%s" % (self._name, self._cluster_id, tables))

    def put_header(self, connection: Connection, epoch: int, rules: str) -> None:
        """Store the rules, in a transaction of the caller's."""
        definition = lane_basis.header_json(rules)
        self._replace(connection, [(_HEADER, epoch, "", definition)])

    def put(
        self,
        connection: Connection,
        epoch: int,
        spreads: Mapping[int, TableSpread],
        names: Mapping[int, str],
    ) -> None:
        """Spreads by fold id; they replace what is stored of the same tables."""
        rows = [(fold, epoch, names.get(fold, ""), spread.to_json()) for fold, spread in spreads.items()]
        for at in range(0, len(rows), _STATEMENT_ROWS):
            self._replace(connection, rows[at : at + _STATEMENT_ROWS])

    def _replace(self, connection: Connection, rows: list[tuple[int, int, str, str]]) -> None:
        values = b",".join(
            b"(%d,%d,%d,%s,%s)"
            % (self._cluster_id, fold, epoch, string_literal(name), string_literal(definition))
            for fold, epoch, name, definition in rows
        )
        connection.run(
            b"REPLACE INTO %s (cluster_id, fold, epoch, name, definition) VALUES " % self._name + values,
        )
