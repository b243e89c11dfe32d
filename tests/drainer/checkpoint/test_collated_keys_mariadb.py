"""Keys under a collation that is not binary, over several lanes and a real MariaDB: what it takes for one key
keeps its order, and a start finds each row in the lane that it was in."""

from __future__ import annotations

import random

import pytest

from drainer.mysql.collation_reader import read_collation
from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.collation import Collation
from drainer.mysql.rows.causality import lane_of_key
from drainer.txn import DELETE, INSERT
from tests.drainer.checkpoint.lanes_apart import apart
from tests.drainer.support.apply_life import run
from tests.drainer.support.basis_world import Running, Upstream, keyed_by_text, routes, whole_life
from tidb_binlog.errors import Corruption

pytestmark = pytest.mark.integration

CI, BIN = "utf8mb4_general_ci", "utf8mb4_bin"
ALTER = "ALTER TABLE d.t MODIFY k VARCHAR(64) COLLATE {} NOT NULL"


def collation(target: Target, name: str) -> Collation:
    connection = connect(target)
    found = read_collation(connection, name)
    connection.close()
    assert found is not None
    return found


def contents(target: Target) -> dict[str, str]:
    return {str(key): str(value) for key, value in run(target, "SELECT k, v FROM d.t")}


def spreads(target: Target) -> str:
    return str(run(target, "SELECT definition FROM tidb_binlog.lane_basis WHERE fold <> 0"))


@pytest.mark.parametrize(
    ("name", "upstream_name"),
    [(CI, CI), ("utf8mb4_unicode_ci", BIN), ("utf8mb4_uca1400_ai_ci", CI)],
)
async def test_what_is_one_key_to_the_downstream_keeps_its_order(
    target: Target, name: str, upstream_name: str
) -> None:
    pick = random.Random(name)
    upstream = Upstream(keyed_by_text(7, "t", upstream_name))
    form = collation(target, name).form
    forms = [str.lower, str.upper, str.title, lambda key: key.replace("e", "é"), lambda key: f"{key}  "]
    keys = [f"key{number}" for number in range(12)]
    assert {lane_of_key(7, form(key.encode()), 4) for key in keys} == {0, 1, 2, 3}
    rows: dict[str, tuple[str, str]] = {}
    life = Running(upstream, target, routes(), lanes=4)
    life.give()
    await life.applied()
    run(target, ALTER.format(name))
    for number in range(300):
        events = []
        for key in pick.sample(keys, 3):
            if key in rows:
                events.append(("t", DELETE, rows.pop(key)))
            if pick.random() < 0.8:
                rows[key] = (pick.choice(forms)(key), str(number))
                events.append(("t", INSERT, rows[key]))
        if events:
            upstream.transaction(*events)
    life.give()
    await life.applied()
    await life.stop()
    assert contents(target) == dict(rows.values())
    assert '"collated key", "key"' in spreads(target)
    assert collation(target, name).label in spreads(target)


@pytest.mark.parametrize(
    ("ahead", "first", "then"),
    [(0, CI, CI), (1, CI, BIN), (0, BIN, CI), (1, BIN, CI), (0, CI, "utf8mb4_czech_ci")],
)
async def test_a_start_finds_rows_in_the_lanes_that_they_were_in(
    target: Target, ahead: int, first: str, then: str
) -> None:
    """Also if the downstream's collation is another by then."""
    upstream = Upstream(keyed_by_text(7, "t", first))
    form = of_ci = collation(target, CI).form
    if first == BIN:
        form = bytes
    keys = [f"{'k' * (number % 5)}{'é' * (number % 3)}{number}" for number in range(40)]
    assert any(lane_of_key(7, of_ci(key), 2) != lane_of_key(7, key, 2) for key in map(str.encode, keys))
    behind = next(key for key in keys if lane_of_key(7, form(key.encode()), 2) != ahead)
    for key in keys:
        upstream.transaction(("t", INSERT, (key, key)))
    await apart(upstream, target, f"INSERT INTO d.t VALUES ('{behind}', 'held')", ahead)
    assert ('"collated key"' if first == CI else '"padded key"') in spreads(target)
    assert 0 < len(contents(target)) < 40
    run(target, ALTER.format(then))
    for key in keys[:10]:
        upstream.transaction(("t", DELETE, (key, key)), ("t", INSERT, (key.upper(), "later")))
    await whole_life(upstream, target)
    later = {key.upper(): "later" for key in keys[:10]}
    assert contents(target) == {key: key for key in keys[10:]} | later


async def test_a_server_that_compares_otherwise_is_refused_while_lanes_are_apart(target: Target) -> None:
    upstream = Upstream(keyed_by_text(7, "t", CI))
    form = collation(target, CI).form
    keys = [f"k{number}" for number in range(40)]
    behind = next(key for key in keys if lane_of_key(7, form(key.encode()), 2) == 0)
    for key in keys:
        upstream.transaction(("t", INSERT, (key, key)))
    await apart(upstream, target, f"INSERT INTO d.t VALUES ('{behind}', 'held')", 1)
    label = collation(target, CI).label
    swap = "UPDATE tidb_binlog.lane_basis SET definition = REPLACE(definition, '{}', '{}')"
    run(target, swap.format(label, f"{CI} other"))
    life = Running(upstream, target, routes())
    life.give()
    with pytest.raises(Corruption, match="compares text otherwise"):
        await life.applied()
    await life.kill()
    run(target, swap.format(f"{CI} other", label))
    await whole_life(upstream, target)
    assert contents(target) == {key: key for key in keys}
