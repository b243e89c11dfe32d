"""Random SQL for TiDB: tables of every kind, every way to change what is there, and their rows.

Statements need not make sense: what TiDB refuses changes nothing. A line of `_DDL` or `_ROWS` is a statement;
what stands in braces is drawn for it.

Tests  tests/rig/tidb/test_values.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Final

from tests.rig.tidb.values import literal
from tidb_binlog.late_dataclass import dataclass, field

SCHEMAS: Final = ("a", "b", "C d")
Name = tuple[str, str]
_NUMBERS: Final = (
    "tinyint|smallint|mediumint|int|bigint|tinyint(1)|int unsigned|bigint unsigned|smallint unsigned"
    "|int(5) unsigned zerofill|decimal(10,0)|decimal(65,30)|decimal(5,2)|decimal(20,10) unsigned|float|double"
    "|bit(1)|bit(8)|bit(64)|year"
)
_TEMPORAL: Final = "date|datetime|datetime(3)|datetime(6)|timestamp|timestamp(6)|time|time(6)"
_TEXTS: Final = "char(10)|varchar(20)|varchar(255)|text|tinytext|mediumtext|char(2)|varchar(700)"
_BINARY: Final = "binary(5)|varbinary(30)|blob|tinyblob|binary(16)|longblob"
_OTHER: Final = "json|enum('a','b','c')|enum('','x y','日本')|set('p','q','r')|set('a','A b')"
_SETS: Final = (
    "||| charset gbk| charset utf8| charset binary| collate utf8mb4_general_ci"
    "| collate utf8mb4_unicode_ci| collate utf8_general_ci"
)
_TIMES: Final = (
    "default '0000-00-00 00:00:00'|default current_timestamp{0}"
    "|default current_timestamp{0} on update current_timestamp{0}"
)
_KEYS: Final = """\
`id` bigint not null primary key{clustered}
`id` int not null auto_increment primary key{clustered}
`id` bigint primary key auto_random(3)
`id` bigint unsigned not null, primary key (`id`){clustered}
`id` int not null, `k` varchar(20) collate utf8mb4_general_ci not null, primary key (`id`, `k`){clustered}
`id` varchar(30) collate utf8mb4_general_ci not null, primary key (`id`){clustered}
`id` varchar(40) not null, primary key (`id`(3)){clustered}
`id` varbinary(20) not null, primary key (`id`){clustered}
`id` decimal(20,5) not null, primary key (`id`){clustered}
`id` datetime(3) not null, primary key (`id`){clustered}
`id` int, unique key `u1` (`id`)
`id` int not null, `w` int, unique key `u1` (`id`), unique key `u2` (`w`)
`id` varchar(50) collate utf8mb4_unicode_ci, unique key `u1` (`id`(2))
`id` int
`id` bigint not null primary key, `w` int, unique key `uw` (`w`)"""
_PARTITIONED: Final = """\
range (`id`) (partition p0 values less than (10), partition p1 values less than (30))
range (`id`) (partition p0 values less than (20), partition p1 values less than maxvalue)
range columns (`id`) (partition p0 values less than (20), partition p1 values less than (100))
hash (`id`) partitions 3
list (`id`) (partition p0 values in (1,2,3,4,5,6,7), partition p1 values in (8,9,10,11,12))
key (`id`) partitions 3"""
_CHANGES: Final = """\
add column {new} {definition}{place}
add column {new} {definition}{place}
add column ({new} {definition}, {new} {definition})
add column {new} bigint as (`v` + {n}) virtual
drop column {column}
modify column {column} {definition}{place}
modify column {column} {near}{place}
change column {column} {new} {near}
change column {column} {new} {definition}{place}
rename column {column} to {new}
alter column {default}
alter column {column} drop default
modify column {nullable}
convert to character set utf8mb4
collate utf8mb4_general_ci
comment 'table {n}'
auto_increment {bound}
shard_row_id_bits 3"""
_DDL: Final[dict[float, str]] = {
    26.0: "alter table {table} {change}",
    5.0: "alter table {table} {change}, {change}\nalter table {table} {change}, {change}, {change}",
    1.0: "create table {spare} ({key}, `v` int{columns}){set}\n"
    "create table {spare} (`id` bigint primary key, `v` int{columns}) partition by {partitioned}\n"
    "create table {spare} like {table}",
    8.0: """\
create index {index} on {table} ({parts})
create unique index {index} on {table} ({parts})
alter table {table} add index {index} ((`v` + 1))
drop index {index} on {table}
alter table {table} rename index {index} to `i{n}`
alter table {table} alter index {index} invisible
alter table {table} alter index {index} visible
alter table {table} add primary key ({parts})
alter table {table} drop primary key""",
    6.0: """\
rename table {table} to {spare}
alter table {table} rename to {spare}
rename table {table} to a.`tmp`, {other} to {table}, a.`tmp` to {other}
rename table {table} to {spare}, {other} to {table}""",
    4.0: """\
truncate table {table}
drop table if exists {gone}
drop table if exists {gone}, {other}
recover table {dropped}
flashback table {dropped}
flashback table {dropped} to `f{n}`
flashback table {table} to `f{n}`""",
    10.0: """\
alter table {parted} add partition (partition p{n} values less than ({bound}))
alter table {parted} add partition (partition p{n} values in ({bound}, {n}))
alter table {parted} drop partition {partition}
alter table {parted} truncate partition {partition}
alter table {parted} reorganize partition {partition} into ({halves})
alter table {parted} exchange partition {partition} with table {table}
create table {schema}.`x{n}` like {parted}
alter table {schema}.`x{n}` remove partitioning""",
    3.0: """\
create or replace view {schema}.`v{n}` as select * from {table}
drop view if exists {schema}.`v{n}`
create sequence {schema}.`s{n}` start with {bound} increment by 3
alter sequence {schema}.`s{n}` increment by 7
drop sequence if exists {schema}.`s{n}`""",
    1.5: """\
drop database if exists `b`
create database if not exists `b`
alter database {schema} charset utf8mb4 collate utf8mb4_general_ci
alter database {schema} charset utf8mb4 collate utf8mb4_bin
flashback database `b`""",
    2.0: """\
alter table {table} add constraint `fk1` foreign key (`v`) references {other} (`id`) on delete cascade
alter table {table} add constraint `fk1` foreign key (`v`) references {other} (`id`) on update set null
alter table {table} drop foreign key `fk1`
create table {spare} (`id` int primary key, `v` bigint, foreign key (`v`) references {other} (`id`))""",
    2.1: """\
alter table {table} cache
alter table {table} nocache
alter table {table} ttl = `ts` + interval 10 year ttl_enable = 'OFF'
alter table {table} remove ttl
alter table {table} placement policy default
alter table {table} attributes 'merge_option=deny'
create placement policy if not exists pp1 followers=1
alter table {table} set tiflash replica 0
create global temporary table a.`gt{n}` (`id` int) on commit delete rows""",
}
_ROWS: Final[dict[float, str]] = {
    16.0: "insert into {table} {rows}\ninsert into {table} {rows}\ninsert ignore into {table} {rows}",
    4.0: "replace into {table} {rows}",
    4.1: "insert into {table} {rows} on duplicate key update {assignments}",
    0.6: "insert ignore into {table} {many}\nreplace into {table} {many}",
    12.0: "update {table} set {assignments} {where}",
    # Not of keys: if the new one is there already, TiDB keeps the row, but its binlog has deleted it.
    1.0: "update ignore {table} set {others} {where}",
    6.0: "delete from {table} {where}",
    3.0: "update {table} set {id} = {id} + 1 order by {id} desc limit {n}\n"
    "update {table} set {id} = {id} - 1 order by {id} limit {n}",
    1.5: "update {table} x join {other} y on x.`v` = y.`v` set {prefixed} where y.`v` < {n}\n"
    "delete x from {table} x join {other} y on x.`v` = y.`v` where y.`v` < {n}",
}


@dataclass(frozen=True, slots=True)
class Column:
    """As information_schema says."""

    name: str
    type: str
    nullable: bool
    is_key: bool
    is_generated: bool


@dataclass(slots=True)
class Catalogue:
    """Tables that there are, as they were looked at last."""

    tables: dict[Name, tuple[Column, ...]] = field(default_factory=dict)
    partitions: dict[Name, tuple[str, ...]] = field(default_factory=dict)
    indexes: dict[Name, tuple[str, ...]] = field(default_factory=dict)
    dropped: list[Name] = field(default_factory=list)


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def full(table: Name) -> str:
    return f"{quote(table[0])}.{quote(table[1])}"


class Statements:
    """Those of one session."""

    def __init__(self, random: Random, catalogue: Catalogue) -> None:
        self._random = random
        self._catalogue = catalogue
        self._table: Name = ("a", "t0")
        self._column = Column("v", "int", True, False, False)
        """What the statement, and a change in it, is about."""

    def rows(self, tables: Sequence[Name]) -> str:
        """One that changes rows of one of the tables."""
        (weight,) = self._random.choices(list(_ROWS), list(_ROWS))
        self._table = self._random.choice(tables)
        self._column = self._any_column()
        return self._filled(self._pick(_ROWS[weight], "\n"))

    def ddl(self) -> str:
        """One that changes definitions; of few tables one that makes some."""
        random, count = self._random, len(self._catalogue.tables)
        if count < 6 or (count < 14 and random.random() < 0.1):
            weight = 1.0
        else:
            (weight,) = random.choices(list(_DDL), list(_DDL))
        form = self._pick(_DDL[weight], "\n")
        parted = list(self._catalogue.partitions)
        self._table = random.choice(parted) if "{parted}" in form and parted else self._any()
        return self._filled(form)

    def _filled(self, form: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda match: str(getattr(self, f"_{match[1]}_")()), form)

    def _pick(self, alternatives: str, by: str = "|") -> str:
        return self._random.choice(alternatives.split(by))

    # -- what stands in braces -----------------------------------------------------------------------------

    def _table_(self) -> str:
        return full(self._table)

    _parted_ = _table_

    def _gone_(self) -> str:
        self._catalogue.dropped.append(self._table)
        return full(self._table)

    def _dropped_(self) -> str:
        return full(self._random.choice(self._catalogue.dropped or [self._table]))

    def _other_(self) -> str:
        return full(self._any())

    def _any(self) -> Name:
        return self._random.choice(list(self._catalogue.tables) or [("a", "t0")])

    def _spare_(self) -> str:
        return f"{self._schema_()}.`t{self._random.randrange(30)}`"

    def _schema_(self) -> str:
        return quote(self._random.choices(SCHEMAS, (6, 3, 1))[0])

    def _written(self, *, keys: bool = True) -> list[Column]:
        """Columns of the table that are no computed ones."""
        columns = self._catalogue.tables.get(self._table, ())
        return [one for one in columns if not one.is_generated and (keys or not one.is_key)] or [self._column]

    def _rows_(self) -> str:
        return self._drawn_rows(self._random.randrange(1, 5))

    def _many_(self) -> str:
        return self._drawn_rows(self._random.choice((200, 800)))

    def _drawn_rows(self, count: int) -> str:
        columns = [
            one for one in self._written() if one.is_key or self._random.random() < 0.85
        ] or self._written()
        rows = (", ".join(self._value(one) for one in columns) for _ in range(count))
        names = ", ".join(quote(one.name) for one in columns)
        return f"({names}) values {', '.join(f'({row})' for row in rows)}"

    def _value(self, column: Column) -> str:
        return literal(self._random, column.type, nullable=column.nullable)

    def _assignments_(self) -> str:
        return self._assignments(self._written())

    def _others_(self) -> str:
        return self._assignments(self._written(keys=False))

    def _prefixed_(self) -> str:
        return self._assignments(self._written(), "x.")

    def _assignments(self, columns: list[Column], prefix: str = "") -> str:
        some = self._random.sample(columns, min(len(columns), self._random.randrange(1, 4)))
        return ", ".join(f"{prefix}{quote(one.name)} = {self._value(one)}" for one in some)

    def _where_(self) -> str:
        random, column = self._random, self._any_column()
        name, value = quote(column.name), literal(random, column.type, nullable=False)
        condition = random.choice((f"{name} = {value}", f"{name} > {value}", "1 = 1", f"{name} is null"))
        return f"where {condition} limit {random.choice((1, 3, 10))}"

    def _id_(self) -> str:
        return quote(self._written()[0].name)

    def _column_(self) -> str:
        return quote(self._column.name)

    def _any_column(self) -> Column:
        columns = self._catalogue.tables.get(self._table)
        return self._random.choice(columns) if columns else self._column

    def _new_(self) -> str:
        return f"`c{self._random.randrange(12)}`"

    def _n_(self) -> int:
        return self._random.randrange(9)

    def _bound_(self) -> int:
        return self._random.randrange(30, 400)

    def _place_(self) -> str:
        return self._random.choice(("", "", "", " first", f" after {quote(self._any_column().name)}"))

    def _change_(self) -> str:
        self._column = self._any_column()
        return self._filled(self._pick(_CHANGES, "\n"))

    def _default_(self) -> str:
        return f"{self._column_()} set default {literal(self._random, self._column.type)}"

    def _nullable_(self) -> str:
        return f"{self._column_()} {self._column.type} {self._random.choice(('null', 'not null'))}"

    def _index_(self) -> str:
        return quote(self._random.choice(("i1", "i2", "u1", *self._catalogue.indexes.get(self._table, ()))))

    def _parts_(self) -> str:
        parts = (
            f"{quote(self._any_column().name)}{self._random.choice(('', '', '(2)'))}"
            for _ in range(self._random.choice((1, 1, 2)))
        )
        return ", ".join(parts)

    def _partition_(self) -> str:
        return self._random.choice(self._catalogue.partitions.get(self._table, ("p0",)))

    def _halves_(self) -> str:
        low, high = sorted((self._bound_(), self._bound_()))
        return f"partition q1 values less than ({low}), partition q2 values less than ({high})"

    def _partitioned_(self) -> str:
        return self._pick(_PARTITIONED, "\n")

    def _clustered_(self) -> str:
        return self._random.choice(("", " clustered", " nonclustered"))

    def _key_(self) -> str:
        return self._filled(self._pick(_KEYS, "\n"))

    def _set_(self) -> str:
        return self._pick(_SETS)

    def _columns_(self) -> str:
        random = self._random
        columns = [f"`c{number}` {self._definition_()}" for number in range(random.randrange(1, 7))]
        if random.random() < 0.2:
            columns.append(f"`g1` bigint as (`v` * 2) {random.choice(('virtual', 'stored'))}")
        if random.random() < 0.2:
            columns.append("`ts` timestamp(3) default current_timestamp(3) on update current_timestamp(3)")
        return "".join(f", {column}" for column in columns)

    def _definition_(self) -> str:
        random = self._random
        family = random.choice((_NUMBERS, _NUMBERS, _TEMPORAL, _TEXTS, _TEXTS, _BINARY, _OTHER))
        kind = self._pick(family)
        return self._definition(kind + self._pick(_SETS) if family is _TEXTS else kind)

    def _near_(self) -> str:
        """A type that takes most of what the column has."""
        random, kind = self._random, self._column.type
        for family in (_NUMBERS, _TEMPORAL, _TEXTS, _BINARY):
            if kind in family.split("|"):
                return self._definition(self._pick(family))
        if kind.startswith(("enum", "set")):
            return f"{kind[:-1]},'n{random.randrange(9)}')"
        return self._definition(self._pick(f"{_TEXTS}|bigint|double|decimal(30,5)"))

    def _definition(self, kind: str) -> str:
        """Type and attributes of a column."""
        random = self._random
        words = [kind]
        if random.random() < 0.35:
            words.append("not null")
        if random.random() < 0.35 and not re.match(r"json|\w*(text|blob)", kind):
            if kind.startswith(("timestamp", "datetime")) and random.random() < 0.6:
                words.append(self._pick(_TIMES).format(kind[kind.find("(") :] if "(" in kind else ""))
            else:
                words.append(f"default {literal(random, kind, nullable='not null' not in words)}")
        if random.random() < 0.1:
            words.append(f"comment 'c{random.randrange(9)} ''q'''")
        return " ".join(words)
