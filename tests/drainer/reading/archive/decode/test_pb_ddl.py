"""DDL of an archive: what its text says, against what the job said."""

from __future__ import annotations

import pytest

from drainer.ddl.derive.derive import same_names
from drainer.reading.archive.decode.pb_ddl import names_of, pb_ddl
from drainer.sink.ddl_text import ddl_texts
from drainer.txn import Ddl
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items


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
