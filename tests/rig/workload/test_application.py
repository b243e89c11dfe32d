"""What the application's database holds after random changes and DDL is what the model says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

import pytest

from binlog_playground.check.downstream import Downstream
from binlog_playground.check.verify import compare
from binlog_playground.cluster.mariadb import MariaDbServer
from tests.rig.workload import evolution, tables
from tests.rig.workload.application import Application
from tests.rig.workload.evolution import Evolution, creation
from tests.rig.workload.model import Model
from tests.rig.workload.workload import Workload

pytestmark = pytest.mark.integration
SCHEMA = "app_random"


@pytest.fixture
def application(mariadb: MariaDbServer) -> Iterator[Application]:
    made = Application(mariadb, SCHEMA)
    made.create()
    try:
        yield made
        with made.session() as session:
            session.run(f"DROP DATABASE {SCHEMA}".encode())
    finally:
        made.close()


def found_there(application: Application, model: Model) -> list[str]:
    """Where the database differs from the model."""
    expected = model.expected()
    with application.session() as session:
        session.rollback()
        found = {
            name: table
            for name, table in Downstream(session).contents(expected).items()
            if name[0] == SCHEMA and name[1] != "binlog_outcome"
        }
    return [str(difference) for difference in compare(expected, found).differences]


def test_the_database_holds_what_the_model_says(application: Application) -> None:
    ids, model, random = itertools.count(1000), Model(SCHEMA), Random(5)
    workload, changes = Workload(random, model), Evolution(random, model, ids)
    for table in tables.standing_tables(SCHEMA, ids):
        application.alter(creation(table).query)
        state = model.add(table)
        rows = [workload.random_row(table) for _ in range(30)]
        application.fill(table, state.fill(rows))
    assert found_there(application, model) == []
    for number in range(300):
        if number % 12 == 0:
            ddl = changes.plan(changes.choose())
            application.alter(ddl.query)
            evolution.apply(model, ddl)
        plan = workload.next()
        assert plan is not None
        with application.session() as session:
            application.change(session, plan.transaction.changes, number + 1)
            session.commit() if number % 5 else session.rollback()
        model.end(plan.transaction, committed=bool(number % 5))
    assert sum(len(state) for state in model.tables.values()) > 200
    assert found_there(application, model) == []
