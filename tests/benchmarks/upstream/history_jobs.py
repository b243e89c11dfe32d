"""A long DDL history as TiDB writes it, for benchmarks: many short lives of a few thousand tables.

Ids rise by one, versions by one to four. One job in forty builds an index and ends long after the jobs behind
it; some are rolled back. What stands at the end is known.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

CREATE_SCHEMA, CREATE, DROP, ADD_COLUMN, ADD_INDEX, TRUNCATE, RENAME = 1, 3, 4, 5, 7, 11, 14
DATABASES: Final = 20
TABLES: Final = 3000
LONG: Final = 800
"""Versions that others get while an index is built."""
FIRST_TS: Final = 430_000_000_000_000_000

_NAME: Final = '{"O":"%s","L":"%s"}'
_COLUMN: Final = (
    '{"id":%d,"name":{"O":"%s","L":"%s"},"offset":%d,"origin_default":null,"origin_default_bit":null,'
    '"default":null,"default_bit":null,"default_is_expr":false,"generated_expr_string":"",'
    '"generated_stored":false,"dependences":null,"type":{"Tp":%d,"Flag":%d,"Flen":20,"Decimal":0,'
    '"Charset":"binary","Collate":"binary","Elems":null,"ElemsIsBinaryLit":null,"Array":false},"state":5,'
    '"comment":"","hidden":false,"change_state_info":null,"version":2}'
)
_TABLE: Final = (
    '{"id":%d,"name":{"O":"%s","L":"%s"},"charset":"utf8mb4","collate":"utf8mb4_bin","cols":[%s],'
    '"index_info":null,"constraint_info":null,"fk_info":null,"state":5,"pk_is_handle":true,'
    '"is_common_handle":false,"common_handle_version":0,"comment":"","auto_inc_id":0,"max_col_id":%d,'
    '"update_timestamp":%d,"ShardRowIDBits":0,"partition":null,"compression":"","view":null,"sequence":null,'
    '"Lock":null,"version":5,"tiflash_replica":null,"is_columnar":false,"temp_table_type":0,'
    '"policy_ref_info":null,"stats_options":null,"exchange_partition_info":null,"ttl_info":null}'
)
_JOB: Final = (
    '{"id":%d,"type":%d,"schema_id":%d,"table_id":%d,"schema_name":"%s","table_name":"%s","state":%d,'
    '"warning":null,"err":null,"err_count":0,"row_count":0,"raw_args":null,"schema_state":5,"snapshot_ver":0,'
    '"real_start_ts":%d,"start_ts":%d,"dependency_id":0,"query":"%s","binlog":{"SchemaVersion":%d,'
    '"DBInfo":%s,"TableInfo":%s,"MultipleTableInfos":null,"FinishedTS":%d},"version":1,"reorg_meta":null,'
    '"multi_schema_info":null,"priority":0,"seq_num":0,"charset":"utf8mb4","collate":"utf8mb4_bin"}'
)
_DATABASE: Final = '{"id":%d,"db_name":%s,"charset":"utf8mb4","collate":"utf8mb4_bin","state":5}'


class LongHistory:
    """`jobs` makes them; `tables` are (id, columns) of those that are left then, by name."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.tables: dict[str, tuple[int, int]] = {}
        self._random = random.Random(count)
        self._version = 0
        self._busy: dict[str, int] = {}  # table -> version at which its index is there
        self._next_table = 1 << 32

    def jobs(self) -> Iterator[tuple[int, bytes]]:
        """(id, JSON), ascending ids."""
        for number in range(1, self.count + 1):
            if number <= DATABASES:
                yield number, self._job(number, CREATE_SCHEMA, number, 0, "", "CREATE DATABASE", "null")
            else:
                yield number, self._next(number)

    def _next(self, number: int) -> bytes:
        pick = self._random.random()
        name = f"orders_{self._random.randrange(TABLES)}"
        while self._busy.get(name, 0) > self._version:
            name = f"orders_{self._random.randrange(TABLES)}"
        found = self.tables.get(name)
        if found is None:
            table_id, columns, action = self._new_id(), 1, CREATE
        else:
            (table_id, columns), action = (
                found,
                ADD_INDEX if pick < 0.025 else DROP if pick < 0.35 else TRUNCATE,
            )
            if pick > 0.7:
                action = RENAME if pick > 0.98 else ADD_COLUMN
        old_id = table_id
        fails = action == ADD_COLUMN and pick < 0.71
        if action == DROP:
            del self.tables[name]
        elif action == TRUNCATE:
            table_id, columns = self._new_id(), 1
        elif action == ADD_COLUMN and not fails:
            columns = min(columns + 1, 2)
        if action != DROP:
            self.tables[name] = table_id, columns
        table = self._table(table_id, name, columns + fails)
        query = f"ALTER TABLE {name} /* what the application said */"
        return self._job(number, action, self._schema_of(name), old_id, name, query, table, 3 if fails else 6)

    def _schema_of(self, name: str) -> int:
        return int(name.rpartition("_")[2]) % DATABASES + 1

    def _new_id(self) -> int:
        self._next_table += 1
        return self._next_table

    def _table(self, table_id: int, name: str, columns: int) -> str:
        cols = ",".join(
            _COLUMN % (n + 1, f"c{n}", f"c{n}", n, 8, 515 if n == 0 else 0) for n in range(columns)
        )
        return _TABLE % (table_id, name, name, cols, columns, FIRST_TS)

    def _job(
        self,
        number: int,
        action: int,
        schema_id: int,
        table_id: int,
        name: str,
        query: str,
        table: str,
        state: int = 6,
    ) -> bytes:
        self._version += self._random.randint(1, 4)
        version = self._version
        if action == ADD_INDEX:
            self._busy[name] = version = version + LONG
        ts = FIRST_TS + number * 1000
        database = "null"
        if action == CREATE_SCHEMA:
            database = _DATABASE % (schema_id, _NAME % (f"shop{schema_id}", f"shop{schema_id}"))
        return (
            _JOB
            % (
                number,
                action,
                schema_id,
                table_id,
                f"shop{schema_id}",
                name,
                state,
                ts,
                ts - 10,
                query,
                version,
                database,
                table,
                ts + 500,
            )
        ).encode()
