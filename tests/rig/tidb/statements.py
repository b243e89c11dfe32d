"""Random SQL for TiDB: tables of every kind, every way to change what is there, and their rows.

Statements need not make sense: what TiDB refuses changes nothing. Their forms are in `forms`; what stands
there in braces is drawn here.

Tests  tests/rig/tidb/test_values.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from tests.rig.tidb.forms import (
    ATTRIBUTES,
    BINARY,
    CHANGES,
    COMPUTED,
    COMPUTED_OF_ANY,
    DDL,
    EXPRESSIONS,
    KEYS,
    NATIONAL,
    NUMBERS,
    OTHER,
    PARTITIONED,
    ROWS,
    SETS,
    TEMPORAL,
    TEXTS,
    TIMES,
)
from tests.rig.tidb.values import large, literal
from tidb_binlog.late_dataclass import dataclass, field

SCHEMAS: Final = ("a", "b", "C d", "Größe 日")
Name = tuple[str, str]
Drawn = Callable[..., str]
_PARTED: Final = "create table {spare} ({parted_key}"
_ODD: Final = (
    "C1",
    "a`b",
    "日本",
    "sp ace",
    "select",
    "b",
    "x.y",
    "Ünï",
    "c%",
    "😀",
    "q'\"",
    "n" * 64,
    "a\\",
    "_tidb",
    "?",
    "İß",
    "a/b#$@~-",
    "日" * 64,
    " lead",
)
"""Names that need quotes, or differ in nothing but their case."""
_OPERANDS: Final = (
    *(
        "timestamp(3)",
        "datetime(2)",
        "date",
        "time",
        "year",
        "decimal(10,2)",
        "double",
        "bit(9)",
        "varbinary(20)",
    ),
    *(
        "enum('a','b','')",
        "set('p','q')",
        "char(9) charset latin1",
        "varchar(9) charset gbk",
        "bigint unsigned",
    ),
)
"""Types of keys that generated columns are computed of."""


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
    partitions: dict[Name, dict[str, str]] = field(default_factory=dict)
    """With their upper bounds, or their values."""
    definitions: dict[Name, str] = field(default_factory=dict)
    """Of partitioned tables, without their partitions."""
    twins: dict[Name, Name] = field(default_factory=dict)
    """Tables that were made to exchange a partition with."""
    jobs: tuple[str, ...] = ()
    """DDL that is under way."""
    indexes: dict[Name, tuple[str, ...]] = field(default_factory=dict)
    dropped: list[Name] = field(default_factory=list)
    file: str = ""
    """What LOAD DATA takes rows from."""
    forced: int = 0
    """The highest counter of rows that was set: if one goes back, TiDB puts rows in the place of others."""


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
        (weight,) = self._random.choices(list(ROWS), list(ROWS))
        self._table = self._random.choice(tables)
        self._column = self._any_column()
        return self._filled(self._pick(ROWS[weight], "\n"))

    def ddl(self) -> str:
        """One that changes definitions; of few tables one that makes some."""
        random, count = self._random, len(self._catalogue.tables)
        if count < 6 or (count < 14 and random.random() < 0.1):
            weight = 1.0
        else:
            (weight,) = random.choices(list(DDL), list(DDL))
        form = self._pick(DDL[weight], "\n")
        parted = [
            name for name in self._catalogue.partitions if "{split}" not in form or self._is_keyed(name)
        ]
        if "{split}" in form and not parted:
            form = _PARTED
        self._table = random.choice(parted) if "{parted}" in form and parted else self._any()
        return self._filled(form)

    def every(self) -> Iterator[str]:
        """Each key, partitioning, computed column and type once: statements that make tables."""
        forms = [f"{key}, `v` int{{columns}})" for key in KEYS.split("\n")]
        forms += [f"{key}, `v` int)" for key in KEYS.split("\n")]
        forms += [f"{self._parted_key(form)}" for form in PARTITIONED.split("\n")]
        for key in ("int", "varchar(20) collate utf8mb4_general_ci", self._random.choice(_OPERANDS)):
            head = f"`id` {key} not null primary key, `v` int"
            forms += [f"{head}, `g` {computed})" for computed in f"{COMPUTED}\n{COMPUTED_OF_ANY}".split("\n")]
        types = "|".join((NUMBERS, TEMPORAL, TEXTS, NATIONAL, BINARY, OTHER)).split("|")
        types += [f"{kind}{charset}" for kind in ("varchar(30)", "text") for charset in SETS.split("|")]
        forms += [
            f"`id` int{' primary key' * (number % 2)}, `v` int, `c0` {kind}, `c1` {self._definition(kind)})"
            for number, kind in enumerate(types)
        ]
        forms += [
            f"`id` int primary key, `v` int, `c0` int {attribute})" for attribute in ATTRIBUTES.split("\n")
        ]
        for number, form in enumerate(forms):
            yield self._filled(f"create table a.`e{number}` ({form}")

    def changes(self) -> Iterator[str]:
        """Each way to change a definition, of any table."""
        for form in [f"alter table {{table}} {change}" for change in CHANGES.split("\n")] * 2:
            self._table = self._any()
            self._column = self._any_column()
            yield self._filled(form)
        for forms in DDL.values():
            for form in forms.split("\n"):
                if "database" in form or "schema `b`" in form:  # all tables may wait with it
                    continue
                parted = list(self._catalogue.partitions)
                self._table = self._random.choice(parted) if "{parted}" in form and parted else self._any()
                yield self._filled(form)

    def _is_keyed(self, table: Name) -> bool:
        """Of others TiDB's REORGANIZE PARTITION loses rows that are written meanwhile."""
        return any(column.is_key for column in self._catalogue.tables.get(table, ()))

    def _filled(self, form: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda match: str(getattr(self, f"_{match[1]}_")()), form)

    def _pick(self, alternatives: str, by: str = "|") -> str:
        return self._random.choice(alternatives.split(by))

    # -- what stands in braces -----------------------------------------------------------------------------

    def _table_(self) -> str:
        name = full(self._table)
        return name.swapcase() if self._random.random() < 0.03 else name

    def _cased_(self) -> str:
        return full((self._table[0], self._table[1].swapcase()))

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
        odd = self._random.random() < 0.15
        name = self._random.choice(_ODD) if odd else f"t{self._random.randrange(30)}"
        return f"{self._schema_()}.{quote(name)}"

    def _bare_(self) -> str:
        """Without its database: often there is none of that name in the one in use."""
        return quote(self._table[1])

    def _bare_spare_(self) -> str:
        return quote(f"t{self._random.randrange(30)}")

    def _ansi_(self) -> str:
        return full(self._table).replace('"', '""').replace("`", '"')

    def _ansi_spare_(self) -> str:
        return f'"a"."t{self._random.randrange(30)}"'

    def _schema_(self) -> str:
        return quote(self._random.choices(SCHEMAS, (6, 3, 1, 1))[0])

    def _written(self, *, keys: bool = True) -> list[Column]:
        """Columns of the table that are no computed ones."""
        columns = self._catalogue.tables.get(self._table, ())
        return [one for one in columns if not one.is_generated and (keys or not one.is_key)] or [self._column]

    def _rows_(self) -> str:
        return self._drawn_rows(self._random.randrange(1, 5))

    def _many_(self) -> str:
        return self._drawn_rows(self._random.choice((200, 800)))

    def _series_(self) -> str:
        return self._drawn_series("select n * 3, n from c")

    def _bulk_(self) -> str:
        """A large transaction."""
        return self._drawn_series("select x.n * 900 + y.n, x.n from c x, c y limit 6000")

    def _drawn_series(self, query: str) -> str:
        numbers = "with recursive c as (select 1 n union all select n + 1 from c where n < 900)"
        return f"insert ignore into {self._table_()} ({self._id_()}, `v`) {numbers} {query}"

    def _large_(self) -> str:
        return self._drawn_rows(self._random.randrange(1, 3), large)

    def _drawn_rows(self, count: int, value: Drawn = literal) -> str:
        columns = [
            one for one in self._written() if one.is_key or self._random.random() < 0.85
        ] or self._written()
        rows = (", ".join(self._value(one, value) for one in columns) for _ in range(count))
        names = ", ".join(quote(one.name) for one in columns)
        return f"({names}) values {', '.join(f'({row})' for row in rows)}"

    def _value(self, column: Column, value: Drawn = literal) -> str:
        return value(self._random, column.type, nullable=column.nullable)

    def _assignments_(self) -> str:
        return self._assignments(self._written())

    def _values_(self) -> str:
        columns = self._written()
        some = self._random.sample(columns, min(len(columns), self._random.randrange(1, 4)))
        return ", ".join(f"{quote(one.name)} = values({quote(one.name)})" for one in some)

    def _defaults_(self) -> str:
        """A row with some columns by their default."""
        columns, random = self._written(), self._random
        values = ("default" if random.random() < 0.4 else self._value(one) for one in columns)
        return f"({', '.join(quote(one.name) for one in columns)}) values ({', '.join(values)})"

    def _whole_(self) -> str:
        """A row without the names of its columns."""
        columns = self._catalogue.tables.get(self._table, (self._column,))
        return f"({', '.join('default' if one.is_generated else self._value(one) for one in columns)})"

    def _crossed_(self, *, keys: bool = True) -> str:
        column = self._random.choice(self._written(keys=keys))
        return f"{quote(column.name)} = {self._expression(column)}"

    def _crossed_others_(self) -> str:
        return self._crossed_(keys=False)

    def _computed_row_(self) -> str:
        columns = self._written()
        values = (
            self._value(one) if one.is_key or self._random.random() < 0.6 else self._expression(one)
            for one in columns
        )
        return f"({', '.join(quote(one.name) for one in columns)}) values ({', '.join(values)})"

    def _expression(self, column: Column) -> str:
        form = self._pick(EXPRESSIONS, "\n")
        form = form.replace("{a}", quote(column.name)).replace("{b}", quote(self._any_column().name))
        return re.sub(r"\{(other|n)\}", lambda match: self._filled(match[0]), form)

    def _value_(self) -> str:
        return self._value(self._any_column())

    def _largely_(self) -> str:
        return self._assignments(self._written(), value=large)

    def _file_(self) -> str:
        return self._catalogue.file

    def _others_(self) -> str:
        return self._assignments(self._written(keys=False))

    def _prefixed_(self) -> str:
        return self._assignments(self._written(), "x.")

    def _assignments(self, columns: list[Column], prefix: str = "", value: Drawn = literal) -> str:
        some = self._random.sample(columns, min(len(columns), self._random.randrange(1, 4)))
        return ", ".join(f"{prefix}{quote(one.name)} = {self._value(one, value)}" for one in some)

    def _where_(self) -> str:
        random, column = self._random, self._any_column()
        name, value = quote(column.name), literal(random, column.type, nullable=False)
        condition = random.choice((f"{name} = {value}", f"{name} > {value}", "1 = 1", f"{name} is null"))
        return f"where {condition} limit {random.choice((1, 3, 10))}"

    def _id_(self) -> str:
        return quote(self._written()[0].name)

    def _column_(self) -> str:
        return quote(self._column.name)

    def _recased_(self) -> str:
        return quote(self._column.name.swapcase())

    def _recased_index_(self) -> str:
        return self._random.choice(("`I1`", "`i1`", "`U1`", "`I2`"))

    def _many_columns_(self) -> str:
        return "".join(f", `w{number}` varchar(40) default '{number}'" for number in range(120))

    def _any_column(self) -> Column:
        columns = self._catalogue.tables.get(self._table)
        return self._random.choice(columns) if columns else self._column

    def _new_(self) -> str:
        """Mostly one that the table does not have."""
        has = {one.name.lower() for one in self._catalogue.tables.get(self._table, ())}
        names = (*(f"c{number}" for number in range(12)), *_ODD)
        free = [name for name in names if name.lower() not in has] or names
        return quote(self._random.choice(free if self._random.random() < 0.95 else names))

    def _swapped_(self) -> str:
        return quote(self._any_column().name)

    def _computed_(self) -> str:
        way = self._random.choice(("virtual", "stored"))
        forms = COMPUTED_OF_ANY if self._random.random() < 0.1 else COMPUTED
        return f"{self._pick(forms, chr(10))} {way}"

    def _n_(self) -> int:
        return self._random.randrange(9)

    def _bound_(self) -> int:
        return self._random.randrange(30, 400)

    def _fresh_(self) -> int:
        self._catalogue.forced += 100_000
        return self._catalogue.forced

    def _place_(self) -> str:
        return self._random.choice(("", "", "", " first", f" after {quote(self._any_column().name)}"))

    def _change_(self) -> str:
        self._column = self._any_column()
        return self._filled(self._pick(CHANGES, "\n"))

    def _default_(self) -> str:
        return f"{self._column_()} set default {literal(self._random, self._column.type)}"

    def _again_(self) -> str:
        """The same type with other attributes."""
        return f"{self._column_()} {self._definition(self._column.type)}"

    def _attribute_(self) -> str:
        return self._pick(ATTRIBUTES, "\n")

    def _recharset_(self) -> str:
        """The same type with another character set."""
        return f"{self._column_()} {self._column.type}{self._pick(SETS)}"

    def _indexes_(self) -> str:
        kinds = ("key", "unique key", "index", "key")
        count = self._random.randrange(1, 4)
        return "".join(
            f", {self._random.choice(kinds)} `x{number}` ({self._random.choice(('`v`', '`c0`', '`c0`(3)'))})"
            for number in range(count)
        )

    def _nullable_(self) -> str:
        return f"{self._column_()} {self._column.type} {self._random.choice(('null', 'not null'))}"

    def _deeds_(self) -> str:
        return self._pick(" on update cascade| on delete set null| on delete cascade on update cascade")

    def _index_(self) -> str:
        return quote(
            self._random.choice(("i1", "i2", "u1", "日 `x", *self._catalogue.indexes.get(self._table, ())))
        )

    def _parts_(self) -> str:
        parts = (
            f"{quote(self._any_column().name)}{self._random.choice(('', '', '(2)'))}"
            for _ in range(self._random.choice((1, 1, 2)))
        )
        return ", ".join(parts)

    def _partition_(self) -> str:
        return quote(self._random.choice(list(self._catalogue.partitions.get(self._table, ("p0",)))))

    def _split_(self) -> str:
        """One partition becomes two, or all become one."""
        random, bounds = self._random, self._catalogue.partitions.get(self._table, {"p0": "20"})
        is_list = not any(bound in ("", "MAXVALUE") for bound in bounds.values()) and random.random() < 0.5
        if random.random() < 0.3:
            old, bound = ", ".join(map(quote, bounds)), list(bounds.values())[-1]
            bound = ",".join(bounds.values()) if is_list else bound
        else:
            old, bound = random.choice(list(bounds.items()))
            old = quote(old)
        called = f"q{self._n_()}"
        if is_list:
            return f"{old} into (partition {called} values in ({bound}))"
        if bound.lstrip("-").isdigit() and random.random() < 0.7:
            low = f"partition {called}l values less than ({int(bound) - random.randrange(1, 12)})"
            return f"{old} into ({low}, partition {called} values less than ({bound}))"
        return f"{old} into (partition {called} values less than ({bound}))"

    def _exchange_(self) -> str:
        """With a table like it, which is made first."""
        random, catalogue = self._random, self._catalogue
        if not catalogue.definitions:
            return self._filled("create table {spare} like {table}")
        self._table = table = random.choice(list(catalogue.definitions))
        twin = catalogue.twins.get(table)
        if twin is None or catalogue.tables.get(twin) != catalogue.tables.get(table):
            catalogue.twins[table] = twin = (table[0], f"x{random.randrange(99)}")
            return f"create table {full(twin)} {catalogue.definitions[table]}"
        how = random.choice(("", "with validation", "without validation", "without validation"))
        return (
            f"alter table {full(table)} exchange partition {self._partition_()} with table {full(twin)} {how}"
        )

    def _job_(self) -> str:
        return self._random.choice(self._catalogue.jobs or ("1",))

    def _parted_key_(self) -> str:
        """The rest of a statement that makes a partitioned table."""
        return self._parted_key(self._pick(PARTITIONED, "\n"))

    def _parted_key(self, form: str) -> str:
        key, _, by = form.partition(" => ")
        by = re.sub(r"(p\d) in ", r"partition \1 values in ", by)
        by = re.sub(r"(p\d) < ", r"partition \1 values less than ", by)
        return f"{key}, `v` int{self._columns_()}) partition by {by}"

    def _clustered_(self) -> str:
        return self._random.choice(("", " clustered", " nonclustered"))

    def _key_(self) -> str:
        return self._filled(self._pick(KEYS, "\n"))

    def _set_(self) -> str:
        return self._pick(SETS)

    def _columns_(self) -> str:
        random = self._random
        columns = [f"`c{number}` {self._definition_()}" for number in range(random.randrange(1, 7))]
        if random.random() < 0.2:
            columns.append(f"`g2` {self._computed_()}")
        if random.random() < 0.2:
            columns.append(f"`g1` bigint as (`v` * 2) {random.choice(('virtual', 'stored'))}")
        if random.random() < 0.2:
            columns.append("`ts` timestamp(3) default current_timestamp(3) on update current_timestamp(3)")
        return "".join(f", {column}" for column in columns)

    def _definition_(self) -> str:
        random = self._random
        family = random.choice((*(NUMBERS, NUMBERS, TEMPORAL, TEXTS, TEXTS, BINARY, OTHER) * 3, NATIONAL))
        kind = self._pick(family)
        return self._definition(kind + self._pick(SETS) if family is TEXTS else kind)

    def _near_(self) -> str:
        """A type that takes most of what the column has."""
        random, kind = self._random, self._column.type
        for family in (NUMBERS, TEMPORAL, TEXTS, BINARY):
            if kind in family.split("|"):
                return self._definition(self._pick(family))
        if kind.startswith(("enum", "set")):
            return f"{kind[:-1]},'n{random.randrange(9)}')"
        return self._definition(self._pick(f"{TEXTS}|bigint|double|decimal(30,5)"))

    def _definition(self, kind: str) -> str:
        """Type and attributes of a column."""
        random = self._random
        words = [kind]
        if random.random() < 0.35:
            words.append("not null")
        if random.random() < 0.35 and not re.match(r"json|\w*(text|blob)", kind):
            if kind.startswith(("timestamp", "datetime")) and random.random() < 0.6:
                words.append(self._pick(TIMES).format(kind[kind.find("(") :] if "(" in kind else ""))
            else:
                # A session that is not strict may give a DECIMAL one that is out of its range.
                value = literal(random, kind, nullable="not null" not in words)
                words.append(f"default {'0.0' if kind.startswith('decimal') else value}")
        if random.random() < 0.1:
            words.append(f"comment 'c{random.randrange(9)} ''q'''")
        return " ".join(words)
