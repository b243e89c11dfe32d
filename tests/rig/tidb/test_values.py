"""Literals and statements: each type has some, and nothing in braces is left."""

from __future__ import annotations

from random import Random

import pytest

from tests.rig.tidb.statements import Catalogue, Column, Statements
from tests.rig.tidb.values import literal

TYPES = (
    *(
        "bigint(20) unsigned",
        "tinyint(1)",
        "decimal(65,30)",
        "decimal(5,2) unsigned",
        "float",
        "bit(64)",
        "year(4)",
    ),
    *(
        "date",
        "datetime(6)",
        "timestamp",
        "time",
        "json",
        "enum('a','x''y')",
        "set('p','q')",
        "varbinary(3)",
        "text",
    ),
)


@pytest.mark.parametrize("column_type", TYPES)
def test_a_value_is_one_literal(column_type: str) -> None:
    random = Random(column_type)
    drawn = {literal(random, column_type) for _ in range(200)}
    assert "NULL" in drawn
    assert len(drawn) > 3
    for value in drawn - {"NULL"}:
        inside = value.replace("\\\\", "").replace("''", "")
        assert inside.count("'") in (0, 2), value


def test_every_statement_is_filled() -> None:
    columns = tuple(Column(f"c{number}", kind, True, number == 0, False) for number, kind in enumerate(TYPES))
    catalogue = Catalogue({("a", f"t{number}"): columns for number in range(15)})
    catalogue.partitions["a", "t1"] = {"p0": "10", "p1": "MAXVALUE"}
    catalogue.definitions["a", "t1"], catalogue.twins["a", "t1"] = "(`c0` int)", ("a", "t2")
    statements = Statements(Random(1), catalogue)
    ddl = [*(statements.ddl() for _ in range(3000)), *statements.every(), *statements.changes()]
    rows = [statements.rows([("a", "t2"), ("a", "t3")]) for _ in range(4000)]
    braces = [one for one in ddl + rows if "{" in one.replace('{"', "").replace("{}", "")]
    assert braces == []
    assert {"alter", "create", "drop", "truncate", "rename", "flashback"} <= {one.split()[0] for one in ddl}
    assert {"insert", "replace", "update", "delete", "with", "load", "select"} <= {
        one.split()[0] for one in rows
    }
    assert any("exchange partition `p1` with table `a`.`t2`" in one for one in ddl)


def test_a_table_without_a_key_is_not_reorganized() -> None:
    """TiDB loses rows of it that are written meanwhile."""
    column = Column("v", "int", True, False, False)
    catalogue = Catalogue({("a", f"t{number}"): (column,) for number in range(15)})
    catalogue.partitions = {name: {"p0": "10"} for name in catalogue.tables}
    statements = Statements(Random(1), catalogue)
    assert not [one for one in (statements.ddl() for _ in range(2000)) if "reorganize partition `" in one]
