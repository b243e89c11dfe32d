"""Random tables with columns of every type, and random rows of them."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.common.rowcodec.tables import binary, key, kind, table
from tidb_binlog.table_info import FieldType, TableInfo

_TEXT: Final = "ab '\\%,.-é中😀\0\n"
_ELEMS: Final = ("a", "b'c", "d")


def random_type(chance: Random, name: str, *, not_null: bool) -> FieldType:
    if name == "decimal":
        precision = chance.randint(1, 65)
        return kind(name, flen=precision, decimal=chance.randint(0, min(precision, 30)), not_null=not_null)
    if name in ("datetime", "timestamp", "time"):
        return kind(name, decimal=chance.randint(0, 6), not_null=not_null)
    if name in ("enum", "set"):
        return kind(name, elems=_ELEMS, not_null=not_null)
    if name == "varbinary":
        return binary("varchar", flen=200, not_null=not_null)
    if name == "unsigned":
        return kind("bigint", unsigned=True, not_null=not_null)
    if name == "bit":
        return kind(name, flen=64, not_null=not_null)
    return kind(name, flen=200 if name == "varchar" else -1, not_null=not_null)


NAMES: Final = (
    *("bigint", "unsigned", "int", "float", "double", "decimal", "varchar", "varbinary", "json"),
    *("enum", "set", "bit", "year", "date", "datetime", "timestamp", "time"),
)


def random_value(chance: Random, name: str, type_: FieldType) -> Any:
    """Of the type `name`, seldom NULL; small and large, plain and odd."""
    if not type_.not_null and chance.random() < 0.15:
        return None
    if name in ("bigint", "int", "unsigned", "bit"):
        bits = chance.randrange(1, 32 if name == "int" else 64)
        number = chance.randrange(1 << bits)
        if name in ("unsigned", "bit"):
            return chance.choice((number, 2**64 - 1 - number))
        return chance.choice((number, -number - 1))
    if name in ("float", "double"):
        number = chance.choice((0.0, -0.0, 1.5, chance.uniform(-1e9, 1e9), chance.uniform(-1, 1)))
        return number if name == "double" else float(chance.randrange(-(1 << 23), 1 << 23)) / 64
    if name == "decimal":
        digits = str(chance.randrange(10 ** chance.randint(0, type_.flen))).rjust(type_.decimal + 1, "0")
        point = len(digits) - type_.decimal
        return chance.choice(("", "-")) + digits[:point] + ("." + digits[point:]) * bool(type_.decimal)
    if name in ("varchar", "varbinary"):
        text = "".join(chance.choices(_TEXT, k=chance.choice((0, 1, 5, 40, 63, 64, 150))))
        return text if name == "varchar" else text.encode()[:200]
    if name == "json":
        return chance.choice(({"a": [1, "it's", None]}, [], ["x\\"], 1, {}))
    if name == "enum":
        return chance.choice(_ELEMS)
    if name == "set":
        return ",".join(elem for elem in _ELEMS if chance.random() < 0.5)
    if name == "year":
        return chance.choice((0, 1901, 2026, 2155))
    day = f"{chance.randrange(1971, 2038):04}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
    if name == "date":
        return chance.choice((day, "0000-00-00", "0001-01-01", "9999-12-31"))
    clock = f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"
    fraction = f".{chance.randrange(1_000_000):06}"[: 1 + type_.fsp] if type_.fsp else ""
    if name == "time":
        return chance.choice(("", "-")) + clock + fraction
    return chance.choice((f"{day} {clock}{fraction}",) * 4 + ("0000-00-00 00:00:00",))


class RandomTable:
    """A table with a column of each of `names` in random order behind its key, every second NOT NULL."""

    def __init__(self, chance: Random, names: tuple[str, ...] = NAMES, handle: str = "int") -> None:
        self._chance = chance
        self.names = tuple(chance.sample(names, len(names)))
        types = [
            FieldType(13, number % 2, 4, 0)
            if name == "year"
            else random_type(chance, name, not_null=number % 2 > 0)
            for number, name in enumerate(self.names)
        ]
        self.types = types
        columns = ((f"c{number}", type_) for number, type_ in enumerate(types))
        self.info: TableInfo = table(("id", key("bigint")), *columns, handle=handle)

    def row(self, row_id: int) -> tuple[Any, ...]:
        values = (
            random_value(self._chance, name, type_)
            for name, type_ in zip(self.names, self.types, strict=True)
        )
        return (row_id, *values)
