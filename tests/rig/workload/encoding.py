"""Encoding: row changes of the model as TiDB writes them into a binlog. Pure.

An update that changes the handle is a delete and an insert, as in TiDB; any other update is one update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pumpclient.publish.transaction import Kind
from tests.rig.workload.model import DELETE, INSERT, Change, Row
from tests.rig.workload.tables import ROWID, Table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import TableInfo


class RowImages:
    """Encodes changes; keeps one encoder per table definition."""

    def __init__(self) -> None:
        self._encoders: dict[int, tuple[Table, RowEncoder]] = {}  # by identity: definitions never change

    def encode(self, changes: Iterable[Change]) -> Iterator[tuple[int, Kind, bytes]]:
        """(table id, kind, row bytes) of each event, in order."""
        for change in changes:
            encoder, table = self._encoder(change.table), change.table
            rowid = change.row_id if table.storage == ROWID else None
            old, new = change.old, change.new
            if change.kind == INSERT:
                assert new is not None
                yield table.id, Kind.INSERT, encoder.insert(new, rowid)
            elif change.kind == DELETE:
                assert old is not None
                yield table.id, Kind.DELETE, encoder.delete(old, rowid)
            else:
                assert old is not None
                assert new is not None
                if table.storage != ROWID and _handle(table, old) != _handle(table, new):
                    yield table.id, Kind.DELETE, encoder.delete(old, rowid)
                    yield table.id, Kind.INSERT, encoder.insert(new, rowid)
                else:
                    yield table.id, Kind.UPDATE, encoder.update(old, new, rowid)

    def _encoder(self, table: Table) -> RowEncoder:
        known = self._encoders.get(id(table))
        if known is None or known[0] is not table:
            known = (table, RowEncoder(TableInfo.from_json(table.info())))
            self._encoders[id(table)] = known
        return known[1]


def _handle(table: Table, row: Row) -> Row:
    return tuple(row[table.position(name)] for name in table.primary)
