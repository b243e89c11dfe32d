"""Random histories of a table on a MariaDB, as an archive has them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from drainer.mysql.literal.image_sql_plan import ImageSqlPlan
from drainer.mysql.rows.change import TableTarget
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.table_reader import read_table
from drainer.reading.archive.decode.records import Row
from drainer.txn import DELETE, INSERT, Ddl, TableEvents, Transaction
from tests.drainer.support import archive_life
from tests.drainer.support.apply_model import World
from tidb_binlog.rowcodec.plan import TablePlan

FIRST_TS = 1 << 40


class History:
    """What happens to a table. `stream` is its transactions as a drainer gets them."""

    def __init__(self, world: World) -> None:
        self.world = world
        found = read_table(world.connection, "m", "dst")
        assert found is not None
        self.target: TableTarget = target_of(world.version, 1, found, plan=ImageSqlPlan)
        self.stream: list[Transaction | Ddl] = []
        self._plan = TablePlan(world.version.info)

    @property
    def last_ts(self) -> int:
        return FIRST_TS + len(self.stream)

    def some(self, transactions: int, events_max: int = 4) -> list[list[Row]]:
        """Made up, and applied upstream."""
        found = []
        for _ in range(transactions):
            number = self.world.rng.randint(1, events_max)
            events = [event for _ in range(number) for event in self.world.event()]
            found.append([self.row(*event) for event in events])
            self.tell(events)
        return found

    def one(self) -> list[Row]:
        """A transaction that changes something."""
        while True:
            (rows,) = self.some(1)
            if rows:
                return rows
            self.stream.pop()

    def replaced(self) -> None:
        """Two rows stay as they are in a LOAD DATA ... REPLACE, of which TiDB says INSERT; one goes later."""
        rids = self.world.rng.sample(list(self.world.rows), 2)
        rows = self.world.rows
        self.tell([(INSERT, self.world.encoder.insert(rows[rid], rowid=rid)) for rid in rids])
        self.tell([self.world.delete(rids[0])])

    def schema_change(self, query: str) -> None:
        ts = self.last_ts + 1
        self.stream.append(Ddl(ts, 9, 13, "m", query, (("m", "dst"),), 2))

    def tell(self, events: list[tuple[int, bytes]]) -> None:
        ts = self.last_ts + 1
        rows = TableEvents(self.world.version, [kind for kind, _ in events], [row for _, row in events], 0)
        self.stream.append(Transaction(ts - 1, ts, (rows,), 1))

    def row(self, kind: int, encoded: bytes) -> Row:
        version = self.world.version
        if kind == INSERT:
            return version, kind, None, self.world.encoder.delete(self._plan.decode_insert(encoded), rowid=1)
        if kind == DELETE:
            return version, kind, encoded, None
        split = self.target.sql.update_split(encoded)
        return version, kind, encoded[:split], encoded[split:]

    async def write(self, directory: Path) -> None:
        """As an archive of several segments."""
        await archive_life.whole(directory, archive_life.Ready(self.stream))


def contents(world: World) -> Counter[Any]:
    columns = ",".join(f"HEX({name})" if name != "f" else "f+0e0" for name in world.names)
    return Counter(world.run(f"SELECT {columns} FROM m.dst"))


def copy_to_downstream(world: World) -> None:
    """Upstream's rows, as a drainer would have brought them."""
    names = ",".join(world.names)
    world.run("DELETE FROM m.dst")
    world.run(f"INSERT INTO m.dst ({names}) SELECT {names} FROM m.ref")
