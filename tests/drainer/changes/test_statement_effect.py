"""Effects by the text of a statement: the same as by its job, names as they are spelled."""

from __future__ import annotations

import pytest

from drainer.changes.ddl_effect import EffectKind, effect
from drainer.changes.statement_effect import action_of, names_of, pb_ddl, statement_effect
from drainer.ddl.derive.derive import same_names
from drainer.sink.ddl_text import ddl_texts
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import Ddl
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.ddl_job import ActionType, parse

KEEPS_ROWS = (EffectKind.ALTER, EffectKind.ALTER_DATABASE)


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_a_text_says_what_its_job_says(scenario: str) -> None:
    follows = SchemaTracker()
    for data in recorded.jobs(scenario):
        job = parse(data)
        by_job = follows.apply(job)
        by_text = statement_effect(job.query, by_job.schema, job.action)
        if not (job.query and job.took_effect):
            continue
        if by_text is None:
            assert by_job.kind in KEEPS_ROWS, job.query
            continue
        assert by_text.kind is by_job.kind or {by_text.kind, by_job.kind} <= {*KEEPS_ROWS}, job.query
        assert by_text.object == by_job.object or by_job.kind is EffectKind.ALTER, job.query
        assert by_text.replaces_rows == by_job.replaces_rows, job.query
        assert by_text.modifies_columns <= by_job.modifies_columns, job.query  # RENAME COLUMN does, too
        named = {(schema.lower(), table.lower()) for schema, table in by_text.tables}
        if by_text.tables:
            assert {(schema.lower(), table.lower()) for schema, table in by_job.tables} <= named, job.query


@pytest.mark.parametrize(
    ("query", "kind", "tables"),
    [
        ("use `x`; DROP TABLE a, d.b;", EffectKind.DROP, (("x", "a"), ("d", "b"))),
        ("ALTER TABLE t RENAME u, DROP PARTITION p", EffectKind.RENAME, (("s", "t"), ("s", "u"))),
        ("FLASHBACK TABLE t TO TIMESTAMP '2023-01-01'", EffectKind.RECOVER, (("s", "t"),)),
        ("RECOVER TABLE BY JOB 5", EffectKind.RECOVER, ()),
        ("FLASHBACK CLUSTER TO TIMESTAMP '2023-01-01'", EffectKind.REWIND, ()),
        ("ALTER DATABASE d CHARSET utf8mb4", EffectKind.ALTER_DATABASE, (("d", ""),)),
        ("CREATE USER u", EffectKind.ALTER, ()),
        ("ANALYZE TABLE t", EffectKind.ALTER, ()),
    ],
)
def test_kind_and_names(query: str, kind: EffectKind, tables: tuple[tuple[str, str], ...]) -> None:
    found = statement_effect(query, "s")
    assert found is not None
    assert (found.kind, found.tables) == (kind, tables)


@pytest.mark.parametrize("query", ["", "FROBNICATE TABLE t", "CREATE", "WITH x AS (SELECT 1) SELECT 2"])
def test_what_is_not_understood_is_not_taken_for_harmless(query: str) -> None:
    assert statement_effect(query, "s") is None


def test_a_restored_table_is_known_by_its_job_alone() -> None:
    query = "CREATE TABLE t (a INT)"
    kinds = [
        one.kind for action in (0, ActionType.CREATE_TABLES) if (one := statement_effect(query, "", action))
    ]
    assert kinds == [EffectKind.CREATE, EffectKind.RESTORE]
    assert effect(ActionType.CREATE_TABLES).replaces_rows


@pytest.mark.parametrize(
    ("query", "action"),
    [
        ("CREATE DATABASE x", 1),
        ("drop schema x", 2),
        ("create table t (a int)", 3),
        ("CREATE TEMPORARY TABLE t (a int)", 3),
        ("DROP TABLE IF EXISTS `a`, `b`", 4),
        ("/* c */ truncate t", 11),
        ("RENAME TABLE a TO b", 14),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", 21),
        ("ALTER TABLE t ADD COLUMN b INT", 0),
        ("", 0),
    ],
)
def test_what_a_statement_does(query: str, action: int) -> None:
    assert action_of(query) == action


# -- of an archive ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_names_in_the_text_are_those_of_the_job(scenario: str) -> None:
    for item in items(scenario):
        if not isinstance(item, Ddl):
            continue
        (text,) = ddl_texts(item, None, same_names)
        found = pb_ddl(item.commit_ts, text.encode())
        wanted, got = ({(a.lower(), b.lower()) for a, b in names} for names in (item.tables, found.tables))
        assert wanted <= got, (item.query, found.tables)
        assert found.query.rstrip("; ") == item.query.rstrip("; ")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("CREATE TABLE IF NOT EXISTS `a`.`b``c` (x INT)", (("a", "b`c"),)),
        ("drop table if exists t, `u`.v", (("s", "t"), ("u", "v"))),
        ("RENAME TABLE a TO b, x.c TO d", (("s", "a"), ("s", "b"), ("x", "c"), ("s", "d"))),
        ("ALTER TABLE t ADD COLUMN (`from` INT, b INT)", (("s", "t"),)),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x.u", (("s", "t"), ("x", "u"))),
        ("TRUNCATE t", (("s", "t"),)),
        ("CREATE UNIQUE INDEX i ON t (a)", (("s", "t"),)),
        ("DROP INDEX i ON x.t", (("x", "t"),)),
        ("DROP DATABASE d", (("d", ""),)),
        ("CREATE OR REPLACE VIEW v AS SELECT 1", (("s", "v"),)),
        ("FLASHBACK TABLE t TO u", (("s", "t"), ("s", "u"))),
        ("RECOVER TABLE BY JOB 5", ()),
        ("", ()),
    ],
)
def test_names_of_a_statement(query: str, names: tuple[tuple[str, str], ...]) -> None:
    assert names_of(query, "s") == names
