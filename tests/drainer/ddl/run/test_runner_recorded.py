"""Every recorded DDL on a real MariaDB, with a crash at every point around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.value import Intent
from drainer.ddl.derive import derive as ddl_derive
from drainer.ddl.run.connection import DdlConnection
from drainer.ddl.run.downstream_schema import server_of, tables_in
from drainer.ddl.run.facts import DdlFacts
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Target
from drainer.mysql.literal.quoting import qualified
from drainer.txn import Ddl
from tests.drainer.support import recorded, recorded_ddl
from tidb_binlog.ddl_job import ActionType

MISSING = {
    "ddl": {
        111: ("expression key kg",),
        144: ("column jv is computed by the downstream's own rules: its values can differ",),
        147: ("expression key ln", "expression key un"),
        149: ("multi-valued key mj",),
        164: ("SHARD_ROW_ID_BITS, which only the upstream has",),
        167: ("AUTO_RANDOM, which only the upstream has",),
        242: ("TTL, which only the upstream has",),
        247: ("PLACEMENT POLICY, which only the upstream has",),
        255: ("it is a temporary table upstream: an ordinary one, which never has rows",),
        268: ("rows that table d1.rec had when it was dropped",),
        270: ("rows that table d1.rec_old had when it was dropped",),
        273: ("rows that table d1.rec_before had when it was dropped",),
    },
    "ddl-flashback-db": {89: ("rows that table d3new.x had when it was dropped",)},
    "keys": {
        147: ("AUTO_RANDOM, which only the upstream has",),
        149: ("AUTO_RANDOM, which only the upstream has",),
    },
}
"""What MariaDB cannot have, by job id. Nothing else may be missing in any scenario."""


class Downstream:
    """A fresh downstream, seen by one runner after another as by drainers that crash and start again."""

    def __init__(self, server: MariaDbServer) -> None:
        self.target = Target(server.host, server.port, server.user, server.password)
        self.connection = server.connect()
        recorded_ddl.drop_all(self.connection)
        self.server = server_of(self.connection)
        self._session: DdlConnection | None = None

    def life(self, tracker: Any) -> DdlRunner:
        """A runner that remembers nothing; the connection is kept, for a new one each time is slow."""
        runner = DdlRunner(self.target, tracker)
        self._session = self._session or runner._session
        runner._session = self._session
        return runner

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        recorded_ddl.drop_all(self.connection)
        self.connection.close()


@pytest.fixture
def downstream(mariadb: MariaDbServer) -> Iterator[Downstream]:
    found = Downstream(mariadb)
    yield found
    found.close()


def check(scenario: str, downstream: Downstream, tracker: Any, ddl: Ddl, missing: set[str]) -> None:
    wrong = recorded_ddl.wrong(downstream.connection, tracker, ddl, downstream.server, missing)
    assert not wrong, f"{scenario}, job {ddl.job_id}: {ddl.query[:80]}"


@pytest.mark.integration
@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_every_recorded_ddl_with_crashes_around_it(scenario: str, downstream: Downstream) -> None:
    """Killed after the intent, and killed after the statement: the next life does what is left to do."""
    missing: set[str] = set()
    found = {}
    for tracker, ddl in recorded_ddl.applied(scenario):
        intent = Intent(ddl.commit_ts, ddl.job_id, ddl.query, downstream.life(tracker).before(ddl))
        second = downstream.life(tracker)
        assert not second.had_run(intent, ddl, None)
        ran = second.run(ddl)
        if ran.missing:
            found[ddl.job_id] = ran.missing
            missing |= set(ran.missing)
        check(scenario, downstream, tracker, ddl, missing)
        third = downstream.life(tracker)
        if third.before(ddl) == intent.before:
            assert not third.had_run(intent, ddl, None)
            third.run(ddl)
        else:
            assert third.had_run(intent, ddl, None)
        check(scenario, downstream, tracker, ddl, missing)
    assert found == MISSING.get(scenario, {})


@pytest.mark.integration
@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_every_recorded_ddl_killed_between_its_steps(scenario: str, downstream: Downstream) -> None:
    """With the first statements of several run already, as by a drainer that was killed between them."""
    missing: set[str] = set()
    for tracker, ddl in recorded_ddl.applied(scenario):
        runner = downstream.life(tracker)
        intent = Intent(ddl.commit_ts, ddl.job_id, ddl.query, runner.before(ddl))
        facts = DdlFacts(downstream.connection, downstream.server, ddl_derive.same_names)
        derived = ddl_derive.derive(facts.change(ddl))
        if len(derived.steps) > 1 and len(derived.steps[0].statements) == 1:
            with downstream.connection.cursor() as cursor:
                cursor.execute(derived.steps[0].statements[0])
            assert runner.had_run(intent, ddl, None)
            missing |= set(derived.missing)
            check(scenario, downstream, tracker, ddl, missing)
        else:
            missing |= set(runner.run(ddl).missing)


KEEP = KeepDropped("tidb_binlog", 7, 600.0)


@pytest.mark.integration
@pytest.mark.parametrize("scenario", ["ddl", "ddl-flashback-db"])
def test_what_is_recovered_upstream_has_its_rows_again(scenario: str, downstream: Downstream) -> None:
    """Dropped and truncated tables are kept: rows that come back upstream are not in the binlog."""
    downstream.connection.run(b"CREATE DATABASE tidb_binlog")
    came_back = 0
    for tracker, ddl in recorded_ddl.applied(scenario):
        runner = downstream.life(tracker)
        runner._keep = KEEP
        intent = Intent(ddl.commit_ts, ddl.job_id, ddl.query, runner.before(ddl))
        missing = runner.run(ddl).missing
        assert not any(line.startswith("rows") for line in missing), ddl.query
        again = downstream.life(tracker)
        again._keep = KEEP
        if not again.had_run(intent, ddl, None):
            again.run(ddl)  # killed after it, and the shape does not show it: once more does no harm
        for one in ddl.after:
            if ddl.action in (ActionType.CREATE_TABLE, ActionType.TRUNCATE_TABLE) and one.name in (
                "rec",
                "rec_old",
                "x",
            ):
                place = qualified(one.schema, one.name)
                assert downstream.connection.rows(b"SELECT COUNT(*) FROM " + place) == [(0,)]
                downstream.connection.run(b"INSERT INTO " + place + b" (id) VALUES (%d)" % one.id)
            if ddl.action in (ActionType.RECOVER_TABLE, ActionType.RECOVER_SCHEMA):
                place = qualified(one.schema, one.name)
                assert downstream.connection.rows(b"SELECT id FROM " + place) == [(one.id,)]
                came_back += 1
    assert came_back == {"ddl": 3, "ddl-flashback-db": 1}[scenario]
    day_later = ddl.commit_ts + (86_400_000 << 18)
    runner.purge(day_later)
    assert not [
        name for name in tables_in(downstream.connection, "tidb_binlog") if name.startswith("dropped")
    ]
