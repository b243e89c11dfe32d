"""Session: random transactions of one connection to TiDB, settings that change what is stored.

Holds  what TiDB refuses is counted by statement and error code; a connection that breaks is made again
       every statement stands in the log with its session's number

Tests  tests/rig/tidb/test_tidb.py
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable, SessionError
from tests.rig.tidb.statements import SCHEMAS, Catalogue, Column, Name, Statements, full, quote
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass, field

_SETTINGS: Final = """\
time_zone = '+00:00' | 'Europe/Berlin' | 'America/New_York' | '-11:30' | 'Asia/Shanghai'
sql_mode = default | default | '' | 'NO_ZERO_DATE' | 'ALLOW_INVALID_DATES' | 'NO_BACKSLASH_ESCAPES'
sql_mode = default | 'ANSI' | 'PIPES_AS_CONCAT' | 'NO_UNSIGNED_SUBTRACTION' | 'REAL_AS_FLOAT'
sql_mode = default | 'STRICT_TRANS_TABLES' | 'NO_AUTO_VALUE_ON_ZERO' | 'PAD_CHAR_TO_FULL_LENGTH' | ''
sql_mode = default | default | 'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE'
sql_mode = default | default | 'HIGH_NOT_PRECEDENCE' | 'IGNORE_SPACE,TRADITIONAL' | 'ORACLE' | 'MAXDB'
sql_mode = default | 'ERROR_FOR_DIVISION_BY_ZERO' | 'ANSI_QUOTES' | 'ALLOW_INVALID_DATES,ANSI'
character_set_client = utf8mb4 | utf8mb4 | latin1 | gbk | binary
collation_connection = utf8mb4_bin | utf8mb4_general_ci | latin1_bin
foreign_key_checks = 0 | 1
autocommit = 0 | 1 | 1
tidb_txn_mode = optimistic | optimistic | pessimistic
tidb_disable_txn_auto_retry = 0 | 1
tidb_batch_insert = 0 | 0 | 1
tidb_batch_delete = 0 | 0 | 1
tidb_dml_batch_size = 0 | 2
auto_increment_increment = 1 | 1 | 3
tidb_allow_remove_auto_inc = 0 | 1
tidb_constraint_check_in_place = 0 | 1
tidb_enable_clustered_index = 'on' | 'off' | 'int_only'
tidb_row_format_version = 1 | 2 | 2
tidb_enable_mutation_checker = 0 | 1
tidb_enable_list_partition = on
tidb_enable_async_commit = 0 | 1
tidb_enable_1pc = 0 | 1
tidb_skip_ascii_check = 0 | 0 | 0 | 1
tidb_skip_utf8_check = 0 | 0 | 0 | 1
tidb_shard_allocate_step = 1 | 9223372036854775807
tidb_enable_noop_functions = 0 | 1
auto_increment_offset = 1 | 2
tidb_opt_write_row_id = 0 | 1
div_precision_increment = 4 | 8
timestamp = default | default | 1600000000.25
character_set_server = utf8mb4 | utf8mb4 | latin1 | gbk
collation_server = utf8mb4_bin | utf8mb4_general_ci
tx_isolation = 'REPEATABLE-READ' | 'READ-COMMITTED'
tidb_enable_auto_increment_in_generated = 0 | 1
allow_auto_random_explicit_insert = 1
tidb_constraint_check_in_place_pessimistic = 0 | 1
default_week_format = 0 | 3
sql_select_limit = default | default | 5
tidb_sysdate_is_now = 0 | 1
tidb_txn_assertion_level = 'OFF' | 'FAST' | 'STRICT'
tidb_read_consistency = 'strict' | 'weak'
tidb_rc_write_check_ts = 0 | 1"""
_FILE: Final = "".join(f"{key},{value}\n" for key in range(-4, 60, 8) for value in (key, 7, "\\N", "x"))
_LISTED: Final = ", ".join(f"'{schema}'" for schema in SCHEMAS).encode()
_COLUMNS: Final = (
    b"""SELECT c.table_schema, c.table_name, column_name, column_type, is_nullable,
 column_key, extra FROM information_schema.columns c JOIN information_schema.tables t
ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema IN (%b) AND table_type = 'BASE TABLE' ORDER BY 1, 2, ordinal_position"""
    % _LISTED
)
_PARTITIONS: Final = (
    b"""SELECT table_schema, table_name, partition_name, partition_description
FROM information_schema.partitions WHERE table_schema IN (%b) AND partition_name IS NOT NULL
ORDER BY 1, 2, partition_ordinal_position"""
    % _LISTED
)
_INDEXES: Final = (
    b"""SELECT DISTINCT table_schema, table_name, key_name FROM information_schema.tidb_indexes
WHERE table_schema IN (%b) AND key_name <> 'PRIMARY'"""
    % _LISTED
)
_JOBS: Final = b"SELECT job_id FROM mysql.tidb_ddl_job"


@dataclass(slots=True)
class Counts:
    """What was done, of all sessions."""

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    commits: int = 0
    rollbacks: int = 0
    lost: int = 0


class Work:
    """What sessions share: where to connect, what there is, counts, the log."""

    def __init__(self, connect: Callable[[int], Connection], log: Path, skips: str = "") -> None:
        """`connect` takes the session's number; `skips`: a pattern of what is not to run."""
        self.connect = connect
        self.skips: Final = re.compile(skips or "(?!)", re.IGNORECASE)
        self.catalogue = Catalogue()
        self.counts = Counts()
        self.ends = threading.Event()
        file = log.with_name("load.csv")
        file.write_text(_FILE)
        self.catalogue.file = str(file)
        self._log = log.open("w", encoding="utf-8", errors="surrogateescape")
        self._lock = threading.Lock()
        self._begin = time.monotonic()

    def note(self, session: int, sql: str, outcome: str) -> None:
        """A line of the log, and the counts."""
        words = sql.split()
        kind = (
            " ".join(words[:2]).lower()
            if words[0].lower() in ("alter", "create", "drop", "rename")
            else words[0]
        )
        with self._lock:
            if outcome:
                self.counts.refused[f"{kind} {outcome.split(' ')[0]}"] += 1
            else:
                self.counts.done[kind.lower()] += 1
            when = time.monotonic() - self._begin
            self._log.write(f"{when:.3f} [{session}] {sql};{f' -- {outcome}' if outcome else ''}\n")
            self._log.flush()

    def look(self, connection: Connection) -> None:
        """See what tables there are."""
        tables: dict[Name, dict[str, Column]] = {}
        for schema, table, name, kind, nullable, key, extra in connection.rows(_COLUMNS):
            column = Column(
                name, kind, nullable == "YES", key == "PRI", "VIRTUAL" in extra or "STORED" in extra
            )
            tables.setdefault((schema, table), {})[name] = column
        self.catalogue.tables = {name: tuple(columns.values()) for name, columns in tables.items()}
        partitions: dict[Name, dict[str, str]] = {}
        for schema, table, name, bound in connection.rows(_PARTITIONS):
            partitions.setdefault((schema, table), {})[name] = bound or ""
        self.catalogue.partitions = partitions
        self.catalogue.indexes = _grouped(connection.rows(_INDEXES))
        self.catalogue.jobs = tuple(str(job) for (job,) in connection.rows(_JOBS))

    def look_closely(self, connection: Connection, table: Name) -> None:
        """See how a partitioned table is defined."""
        ((_, text),) = connection.rows(f"SHOW CREATE TABLE {full(table)}".encode())
        columns = text.partition("\nPARTITION BY")[0]
        self.catalogue.definitions[table] = columns[columns.index("(") :]


def _grouped(rows: Iterable[tuple[str, str, str]]) -> dict[Name, tuple[str, ...]]:
    names: dict[Name, list[str]] = {}
    for schema, table, name in rows:
        names.setdefault((schema, table), []).append(name)
    return {table: tuple(each) for table, each in names.items()}


class Session:
    """One thread's; `run` it there."""

    def __init__(self, number: int, seed: int, work: Work, *, writes_ddl: bool = False) -> None:
        self._number = number
        self._random = Random(f"{seed} {number}")
        self._work = work
        self._statements = Statements(self._random, work.catalogue)
        self._writes_ddl = writes_ddl
        self._connection: Connection | None = None

    def run(self) -> None:
        """Until the work ends."""
        while not self._work.ends.is_set():
            try:
                self._go_on()
            except Unavailable:
                time.sleep(0.2)
            except SessionError:
                self._work.counts.lost += 1
                self._drop()
        self._drop()

    def every(self) -> None:
        """Each form once, whatever the seed; rows of each table, before and after definitions change."""
        self._connection = self._work.connect(self._number)
        for statements in (self._statements.every(), self._statements.changes()):
            for sql in statements:
                self._run(sql)
            self._look()
            for table in sorted(self._work.catalogue.tables):
                for _ in range(8):
                    self._run(self._statements.rows([table]))
                if self._run("commit"):
                    self._work.counts.commits += 1
        self._drop()

    def _go_on(self) -> None:
        random = self._random
        if self._connection is None:
            self._connection = self._work.connect(self._number)
            self._settle(all_of_them=True)
        if self._writes_ddl:
            self._run(self._statements.ddl())
            self._look()
            if random.random() < 0.1:
                self._settle(all_of_them=False)
            self._work.ends.wait(random.random() * 0.4)
            return
        if random.random() < 0.05:
            self._settle(all_of_them=False)
        self._transaction()
        self._work.ends.wait(random.random() * 0.02)

    def _look(self) -> None:
        assert self._connection is not None
        self._work.look(self._connection)
        parted = list(self._work.catalogue.partitions)
        if parted:
            with suppress(NoSuchTable):
                self._work.look_closely(self._connection, self._random.choice(parted))

    def _settle(self, *, all_of_them: bool) -> None:
        for line in _SETTINGS.splitlines():
            name, _, values = line.partition(" = ")
            if all_of_them or self._random.random() < 0.2:
                self._run(f"set {name} = {self._random.choice(values.split(' | '))}")
        self._run(f"use {quote(self._random.choice(SCHEMAS))}")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _run(self, sql: str) -> bool:
        assert self._connection is not None
        if self._work.skips.search(sql):
            return False
        try:
            self._work.counts.rows += self._connection.run(sql.encode("utf-8", "surrogateescape"))
        except SessionError as error:
            self._work.note(self._number, sql, f"{error.number} {error.text[:200]!r}")
            if not error.number or error.number in (2006, 2013):
                raise
            return False
        self._work.note(self._number, sql, "")
        return True

    # -- rows --------------------------------------------------------------------------------------------

    def _transaction(self) -> None:
        random = self._random
        tables = self._work.catalogue.tables
        if not tables:
            time.sleep(0.1)
            return
        if random.random() < 0.5:
            self._run("begin")
        few = random.sample(sorted(tables), min(len(tables), 2))
        for _ in range(random.choice((1, 1, 2, 4, 8))):
            self._run(self._statements.rows(few))
        if random.random() < 0.01:  # commits what came before
            self._run(self._statements.ddl())
        if random.random() < 0.15:
            self._run("rollback")
            self._work.counts.rollbacks += 1
        elif self._run("commit"):
            self._work.counts.commits += 1
