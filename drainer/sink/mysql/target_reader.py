"""Target reader: what lanes need to know of the downstream's tables, read before the first row goes there.

Drives  `table_reader` on a connection of its own
Holds   a table that is missing downstream is taken to be as upstream's: the lane that writes to it says so,
        after everything before it is committed
"""

from __future__ import annotations

from collections.abc import Sequence

from drainer.mysql.connection import Target
from drainer.mysql.rows.change import TableTarget
from drainer.mysql.rows.table_target import NotTransactional, TableUnfit, target_of
from drainer.mysql.session import DownstreamSession
from drainer.mysql.table_reader import read_table
from drainer.txn import TableVersion
from tidb_binlog.errors import DownstreamError
from tidb_binlog.observe import log

logger = log.get("drainer.table_reader")


class TableReader:
    """Blocking; not thread-safe. Raises `SessionError`."""

    def __init__(self, target: Target, *, sync_mode: int) -> None:
        self._sync_mode = sync_mode
        self._warned: set[str] = set()
        self._session = DownstreamSession(target)

    def targets(self, versions: Sequence[TableVersion], lanes: int) -> list[TableTarget]:
        """How rows of these tables are written. Raises `TableUnfit` for one that cannot take them."""
        return [self._target_of(version, lanes) for version in versions]

    def _target_of(self, version: TableVersion, lanes: int) -> TableTarget:
        with self._session.connection() as connection:
            try:
                table = read_table(connection, *version.downstream)
                target = target_of(version, lanes, table, sync_mode=self._sync_mode)
            except DownstreamError as error:
                raise TableUnfit(error, version) from error
        if target.repeats and target.label not in self._warned:
            self._warned.add(target.label)
            logger.warning(
                "a table downstream has no transactions: after a crash others see parts of batches until they"
                " have come again",
                table=target.label,
                engine=table.engine if table else "",
                hint=f"ALTER TABLE {target.label} ENGINE=InnoDB",
            )
        return target

    def targets_of_the_past(self, versions: Sequence[TableVersion], lanes: int) -> list[TableTarget]:
        """As `targets`, for rows that all lanes may have applied: a table that does not fit is no error."""
        targets = []
        for version in versions:
            try:
                targets += self.targets([version], lanes)
            except TableUnfit as unfit:
                if isinstance(unfit.__cause__, NotTransactional):
                    raise
                targets.append(target_of(version, lanes))
        return targets

    def close(self) -> None:
        self._session.close()
