"""Mirror: what a program keeps of tables that it reads, told by DDL and rows."""

from __future__ import annotations

import random
from typing import Any

from drainer.changes.model import Ddl
from drainer.changes.row_reader import RowReader
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import RouteRule, TableFilter, TableRouter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl as EncodedDdl
from tests.drainer.stream.schema.upstream_jobs import Upstream, table
from tests.drainer.support.apply_life import created
from tidb_binlog.ddl_job import ActionType

NAMES = ("ra", "rb", "rc", "xa", "xb")
"""Those with r are read."""


Parts = dict[int, set[int]]


class World:
    """One database, Db. `tables`: id -> (name, rows by partition; of a plain table by its own id)."""

    def __init__(self, *routes: RouteRule) -> None:
        self.up, self.tracker, self.reader = Upstream(), SchemaTracker(), RowReader()
        names = TableFilter(do_table=[("Db", "~^r")])
        self.translator = Translator(self.tracker, Rules(names=names, router=TableRouter(routes)))
        self.tables: dict[int, tuple[str, Parts]] = {}
        self.bin: list[tuple[int, str, Parts]] = []
        self.mirror: dict[str, set[int]] = {}
        self.column_ids: dict[int, int] = {}  # of tables whose column became another one
        self.count = 100
        self.run(self.up.create_database())

    def next(self) -> int:
        self.count += 1
        return self.count

    def document(self, table_id: int, name: str = "") -> dict[str, Any]:
        name = name or self.tables[table_id][0]
        document = table(table_id, name, partitions=self._partitions(table_id))
        document["cols"][0]["id"] = self.column_ids.get(table_id, 1)
        return document

    def job(self, action: int, table_id: int, of: int, **more: Any) -> Ddl | None:
        """`table_id`: what the job says; `of`: the table that it has the definition of."""
        info = self.document(of) if of else None
        return self.run(self.up.job(action, table_id=table_id, info=info, **more))

    def run(self, job: Any) -> Ddl | None:
        item = self.translator.translate(created(job.document, self.up.count * 100))
        assert isinstance(item, EncodedDdl)
        if item.skip:
            return None
        ddl = self.reader.ddl(item)
        self.follow(ddl)
        self.seen(ddl)
        return ddl

    def seen(self, ddl: Ddl) -> None:
        """For tests of programs."""

    def truth(self) -> dict[str, set[int]]:
        return {
            f"Db.{name}": set().union(*parts.values())
            for name, parts in self.tables.values()
            if name.startswith("r") and any(parts.values())
        }

    def follow(self, ddl: Ddl) -> None:
        effect, mirror, truth = ddl.effect, self.mirror, self.truth()
        if effect.everything:
            self.mirror = truth
            return
        moved = [(mirror.pop(str(old), None), str(new)) for old, new in effect.moved]
        for one in effect.emptied:
            mirror.pop(str(one), None)
        for rows, name in moved:
            if rows:
                mirror[name] = rows
        for one in effect.reread:
            mirror.pop(str(one), None)
            if str(one) in truth:
                mirror[str(one)] = truth[str(one)]

    # -- changes -----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int) -> int:
        made = self.next()
        self.tables[made] = (name, {self.next(): set() for _ in range(partitions)} or {made: set()})
        self.job(ActionType.CREATE_TABLE, made, made)
        return made

    def insert(self, table_id: int) -> None:
        name, parts = self.tables[table_id]
        for rows in parts.values():
            rows.add(self.next())
        if name.startswith("r"):
            self.mirror[f"Db.{name}"] = set().union(*parts.values())

    def becomes(self, table_id: int) -> int:
        """Another id for a table; its columns stay what they are."""
        made = self.next()
        self.column_ids[made] = self.column_ids.get(table_id, 1)
        return made

    def truncate(self, table_id: int) -> Ddl | None:
        name, parts = self.tables.pop(table_id)
        made = self.becomes(table_id)
        self.tables[made] = (
            name,
            {made: set()} if table_id in parts else {self.next(): set() for _ in parts},
        )
        return self.job(ActionType.TRUNCATE_TABLE, table_id, made)

    def drop(self, table_id: int) -> Ddl | None:
        document = self.document(table_id)
        name, parts = self.tables.pop(table_id)
        self.bin.append((table_id, name, parts))
        return self.run(self.up.job(ActionType.DROP_TABLE, table_id=table_id, info=document))

    def recover(self) -> Ddl | None:
        table_id, name, parts = self.bin.pop()
        made = self.becomes(table_id)
        self.tables[made] = (name, {made: parts[table_id]} if table_id in parts else parts)
        return self.job(ActionType.RECOVER_TABLE, made, made)

    def rename(self, *pairs: tuple[int, str]) -> Ddl | None:
        texts = []
        for table_id, new in pairs:
            old, parts = self.tables[table_id]
            texts.append(f"Db.{old} TO Db.{new}")
            self.tables[table_id] = (new, parts)
        infos = [self.document(one, new) for one, new in pairs]
        return self.run(
            self.up.job(
                ActionType.RENAME_TABLES,
                query="RENAME TABLE " + ", ".join(texts),
                infos=infos,
                raw_args=[[], [1000] * len(pairs)],
            )
        )

    def _partitions(self, table_id: int) -> tuple[int, ...]:
        parts = self.tables[table_id][1]
        return () if table_id in parts else tuple(parts)

    def lose_partition(self, table_id: int, *, drop: bool) -> Ddl | None:
        parts = self.tables[table_id][1]
        del parts[next(iter(parts))]
        if not drop:
            parts[self.next()] = set()
        action = ActionType.DROP_TABLE_PARTITION if drop else ActionType.TRUNCATE_TABLE_PARTITION
        return self.job(action, table_id, table_id)

    def exchange(self, plain: int, partitioned: int) -> Ddl | None:
        name, mine = self.tables.pop(plain)
        parts = self.tables[partitioned][1]
        given = next(iter(parts))
        self.tables[given] = (name, {given: parts.pop(given)})
        self.column_ids[given] = self.column_ids.get(plain, 1)
        parts[plain] = mine[plain]
        return self.job(ActionType.EXCHANGE_TABLE_PARTITION, plain, partitioned)

    def partition_by(self, plain: int) -> Ddl | None:
        name, parts = self.tables.pop(plain)
        made = self.becomes(plain)
        self.tables[made] = (name, {self.next(): parts[plain]})
        return self.job(ActionType.ALTER_TABLE_PARTITIONING, plain, made)

    def recast(self, table_id: int) -> Ddl | None:
        """MODIFY COLUMN to another type: all rows have other values then."""
        for rows in self.tables[table_id][1].values():
            taken = [self.next() for _ in rows]
            rows.clear()
            rows.update(taken)
        self.column_ids[table_id] = self.next()
        return self.job(ActionType.MODIFY_COLUMN, table_id, table_id)

    def flashback(self, draw: random.Random) -> Ddl | None:
        for _, parts in self.tables.values():
            for rows in parts.values():
                rows.difference_update([one for one in rows if draw.random() < 0.5])
        return self.job(ActionType.FLASHBACK_CLUSTER, 0, 0)

    def any_change(self, draw: random.Random) -> None:
        names = {name: table_id for table_id, (name, _) in self.tables.items()}
        free = [name for name in NAMES if name not in names]
        plain = [one for one, (_, parts) in self.tables.items() if one in parts]
        split = [one for one, (_, parts) in self.tables.items() if one not in parts]
        some = draw.choice(list(self.tables)) if self.tables else 0
        match draw.randrange(13):
            case 0 | 1 if free:
                self.create(draw.choice(free), draw.choice((0, 2)))
            case 2 if some:
                self.truncate(some)
            case 3 if some:
                self.drop(some)
            case 4 if self.bin and self.bin[-1][1] in free:
                self.recover()
            case 5 | 6 if some and free:
                self.rename((some, draw.choice(free)))
            case 7 if len(names) > 1:
                (one, a), (other, b) = draw.sample(sorted(names.items()), 2)
                self.rename((a, "between"), (b, one), (a, other))
            case 8 | 9 if split:
                one = draw.choice(split)
                self.lose_partition(one, drop=len(self.tables[one][1]) > 1 and draw.random() < 0.5)
            case 10 if plain and split:
                self.exchange(draw.choice(plain), draw.choice(split))
            case 11 if plain and draw.random() < 0.3:
                self.partition_by(draw.choice(plain))
            case 12 if some:
                self.recast(some)
            case _ if draw.random() < 0.1:
                self.flashback(draw)
