"""Target reader: what lanes need to know of the downstream's tables, read before the first row goes there.

Holds   a table that is missing downstream is taken to be as upstream's: the lane that writes to it says so,
        after everything before it is committed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drainer.mysql.collation_reader import read_collation
from drainer.mysql.connection import Connection, Target
from drainer.mysql.literal.collation import Collation
from drainer.mysql.rows.causality import collations_of
from drainer.mysql.rows.change import TableTarget
from drainer.mysql.rows.column_match import DownstreamTable, absent
from drainer.mysql.rows.table_target import NotTransactional, TableUnfit, target_of
from drainer.mysql.session import DownstreamSession
from drainer.mysql.table_reader import read_table
from drainer.txn import TableVersion
from tidb_binlog.errors import Corruption, DownstreamError
from tidb_binlog.observe import log

logger = log.get("drainer.table_reader")


class TableReader:
    """Blocking; not thread-safe. Raises `SessionError`."""

    def __init__(self, target: Target, *, sync_mode: int) -> None:
        self._sync_mode = sync_mode
        self._warned: set[tuple[str, ...]] = set()
        self._collations: dict[str, Collation] = {}
        self._session = DownstreamSession(target)

    def targets(self, versions: Sequence[TableVersion], lanes: int) -> list[TableTarget]:
        """How rows of these tables are written. Raises `TableUnfit` for one that cannot take them."""
        return [self._target_of(version, lanes) for version in versions]

    def _target_of(self, version: TableVersion, lanes: int) -> TableTarget:
        with self._session.connection() as connection:
            try:
                table = read_table(connection, *version.downstream)
                collations = {} if table is None else self._told(connection, collations_of(table))
                target = target_of(version, lanes, table, sync_mode=self._sync_mode, collations=collations)
            except DownstreamError as error:
                raise TableUnfit(error, version) from error
        if table is not None:
            self._warn(target, table)
        return target

    def _warn(self, target: TableTarget, table: DownstreamTable) -> None:
        lacking = absent(target.version.info, table, target.version.left_out)
        if lacking and (target.label, *lacking) not in self._warned:
            self._warned.add((target.label, *lacking))
            logger.warning(
                "columns are left out: the table downstream has none of these names, which "
                + ("a binlog-filter-rule allows" if target.version.ddl_filtered else "sync-mode = 2 allows"),
                table=target.label,
                columns=list(lacking),
            )
        if target.repeats and (target.label,) not in self._warned:
            self._warned.add((target.label,))
            logger.warning(
                "a table downstream has no transactions: after a crash others see parts of batches until they"
                " have come again",
                table=target.label,
                engine=table.engine,
                hint=f"ALTER TABLE {target.label} ENGINE=InnoDB",
            )

    def _told(self, connection: Connection, names: Iterable[str]) -> dict[str, Collation]:
        """What the server takes for equal, as far as it can be told; asked once."""
        for name in names:
            if name not in self._collations and (read := read_collation(connection, name)) is not None:
                self._collations[name] = read
        return {name: self._collations[name] for name in names if name in self._collations}

    def collations(self, labels: Sequence[str]) -> tuple[Collation | None, ...]:
        """Those that rows were spread by, by their labels. Raises `Corruption` if they are others now."""
        names = [label.partition(" ")[0] for label in labels]
        with self._session.connection() as connection:
            told = self._told(connection, [name for name in names if name])
        collations = tuple(told.get(name) for name in names)
        for label, now in zip(labels, collations, strict=True):
            if label != (now.label if now is not None else ""):
                raise Corruption(
                    f"the downstream compares text otherwise than when rows were dispatched ({label}): rows"
                    " between the lanes' positions would be applied twice or not at all",
                    hint="let this release run on the server of before and stop it gracefully: all lanes then"
                    " stand at one position, from which it can resume on another",
                )
        return collations

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
