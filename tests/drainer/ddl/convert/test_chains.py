"""Random chains of type changes on a real MariaDB: after each one every value is what TiDB's cast gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from drainer.ddl.convert.cast import Moments, Value, cast
from drainer.ddl.convert.moments import NoCast, zone_of
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Connection, Target
from tests.drainer.ddl.convert.schema import (
    ID,
    MORE,
    Schema,
    column,
    contents,
    create,
    ddl,
    generated,
    session,
    table,
)
from tests.drainer.support import conversions
from tests.drainer.support.conversions import field_type

__all__ = ["session"]
ZONES = {"UTC": 0, "Europe/Berlin": 3600, "America/St_Johns": -12600}
WORDS = (b"12", b"-0.5", b"1e3", b"2020-02-03", b"a", b"7 ", b"0", b"23:59:58", b"[1]", b"20200102030405")


@pytest.fixture
def runner(target: Target) -> Iterator[DdlRunner]:
    runner = DdlRunner(target, Schema())
    yield runner
    runner.close()


def _next(chance: random.Random, was: Any, values: list[Value], job: Moments) -> tuple[Any, list[Value]]:
    """A type that TiDB lets the column change to, and the values then."""
    while True:
        kind = field_type(chance.choice(MORE))
        try:
            after = [cast(value, was, kind, job) for value in values]
        except NoCast:
            continue
        if kind != was:
            return kind, after


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(12))
def test_values_follow_the_cast(seed: int, session: Connection, runner: DdlRunner) -> None:
    chance = random.Random(seed)
    kind = field_type(chance.choice(MORE))
    texts = kind == field_type("varchar(60)") or chance.random() < 0.4
    kind = field_type("varchar(60)") if texts else kind
    values: list[Value] = [*WORDS] if texts else generated(kind, chance)
    create(session, kind, values, key=chance.choice(["", " PRIMARY KEY"]))
    for number in range(2, 7):
        name, offset = chance.choice([*ZONES.items()])
        job = Moments(zone_of(name, ""), conversions.DAY)
        after, wanted = _next(chance, kind, values, job)
        document = {"reorg_meta": {"location": {"name": name, "offset": offset}}}
        keyed = chance.random() < 0.5
        before = table(ID, column(number, kind), keyed=keyed)
        ran = runner.run(ddl(before, table(ID, column(number + 1, after), keyed=keyed), document))
        have = contents(session, after)
        if not ran.missing:  # else TiDB has what no other server can
            assert have == wanted, (kind, after, name)
        kind, values = after, have
