"""What lane positions belong to, on a real MariaDB: a lane is held back, the drainer dies, and what decides
where rows go is another one in the next life, or in the same one. No row is lost, none comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from drainer.checkpoint.lane_basis import HASH_VERSION
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target
from drainer.mysql.rows.causality import fold_id_of, lane_of_key, lane_of_table
from drainer.relay.relay_log import LogMark, RelayLog
from drainer.stream.rules.rule_set import read_rules
from drainer.txn import DELETE, INSERT, Ddl, Transaction
from tests.drainer.checkpoint.lanes_apart import apart
from tests.drainer.support.apply_life import column, run
from tests.drainer.support.basis_world import (
    ADD_COLUMN,
    KEY,
    Running,
    Upstream,
    held,
    ids,
    keyed,
    keyless,
    lanes,
    routes,
    whole_life,
)
from tidb_binlog.errors import ConfigError, Corruption, Rejected
from tidb_binlog.table_info import LONGLONG, VARCHAR, TableInfo

pytestmark = pytest.mark.integration
LANES = 2
SET_HASH = (
    "UPDATE tidb_binlog.lane_basis SET definition = REPLACE(definition, '\"hash\": %d', '\"hash\": %d')"
)


@pytest.fixture(autouse=True)
def databases(target: Target) -> None:
    run(target, "CREATE DATABASE shop")


def by_lane(fold_id: int, upto: int) -> list[list[int]]:
    """Ids of rows by the lane of their key."""
    found: list[list[int]] = [[] for _ in range(LANES)]
    for number in range(1, upto + 1):
        found[lane_of_key(fold_id, b"%d" % number, LANES)].append(number)
    return found


def elsewhere(table_id: int) -> int:
    """Id of a table that is pinned to the other lane."""
    lane = lane_of_table(table_id, LANES)
    return next(one for one in range(table_id + 1, 99) if lane_of_table(one, LANES) != lane)


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_unique_key_made_downstream_between_two_lives(target: Target, ahead: int) -> None:
    """Rows spread over two lanes, then all in one: those of the lane behind are neither lost nor doubled."""
    upstream = Upstream(keyed(7, "t"), keyless(8, "other"))
    behind = by_lane(7, 40)[1 - ahead][0]
    upstream.rows("t", range(1, 41))
    if lane_of_table(8, LANES) == ahead:
        upstream.rows("other", range(1, 11))
    await apart(upstream, target, f"INSERT INTO d.t VALUES ({behind}, 'held')", ahead)
    before = ids(target, "d.t")
    assert 0 < len(before) < 40
    run(target, "ALTER TABLE d.t ADD UNIQUE KEY extra (v)")
    upstream.rows("t", range(41, 51))
    await whole_life(upstream, target)
    assert ids(target, "d.t") == list(range(1, 51))


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_unique_key_dropped_downstream_between_two_lives(target: Target, ahead: int) -> None:
    """Rows pinned to one lane, then spread over both, one of which is ahead because of another table."""
    pinned = lane_of_table(7, LANES)
    upstream = Upstream(keyed(7, "t"), keyless(elsewhere(7), "u"))
    life = Running(upstream, target, routes())
    life.give()
    await life.applied()
    run(target, "ALTER TABLE d.t ADD UNIQUE KEY extra (v)")
    upstream.rows("t", [1])  # it is met as it is now
    life.give()
    await life.applied()
    held_table = "t" if ahead != pinned else "u"
    for number in range(2, 42):
        upstream.transaction(("t", INSERT, (number, f"v{number}")), ("u", INSERT, (number, "u")))
    if held_table == "t":
        blocker = "INSERT INTO d.t VALUES (2, 'held')"
    else:
        blocker = "LOCK TABLES d.u READ"
    with held(target, blocker):
        life.give()
        await life.reaches(1 - pinned if held_table == "t" else pinned, upstream.now_ts)
        await life.kill()
    run(target, "ALTER TABLE d.t DROP KEY extra")
    upstream.rows("t", range(42, 52))
    await whole_life(upstream, target)
    assert ids(target, "d.t") == list(range(1, 52))
    assert ids(target, "d.u") == list(range(2, 42))


@pytest.mark.parametrize("ahead", [0, 1])
async def test_shards_gain_a_unique_key_and_both_are_spread_alike(target: Target, ahead: int) -> None:
    """Nobody touches the downstream: it gets the key with the last shard that does, and rows of both go on
    where the key wants them."""
    rules = routes(("d", "s?", "shop", "orders"), disjoint_shards=True)
    upstream = Upstream(keyed(1, "s1"), keyed(2, "s2"), keyless(3, "other"))
    upstream.rows("s2", [1, 2])
    life = Running(upstream, target, rules)
    life.give()
    await life.applied()
    upstream.add_unique("s1")
    fold = fold_id_of(0, ("shop", "orders"))
    behind = next(one for one in by_lane(fold, 60)[1 - ahead] if one > 4)
    upstream.rows("s2", range(3, 53))
    upstream.rows("s1", range(101, 111))
    life.give(1050)
    await life.applied()
    with held(target, f"INSERT INTO shop.orders VALUES ({behind}, 'held')"):
        life.give()
        await asyncio.sleep(0.3)
        await life.kill()
    upstream.add_unique("s2")
    upstream.rows("s2", range(53, 56))
    life = Running(upstream, target, rules)
    life.give()
    await life.applied()
    assert await life.sink.finish_waiting() == [], "all shards have it"
    await life.stop()
    assert ids(target, "shop.orders") == [*range(1, 56), *range(101, 111)]
    assert run(target, "SHOW KEYS FROM shop.orders WHERE Key_name = 'u'")


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_route_added_between_two_lives(target: Target, ahead: int) -> None:
    """Rows up to the highest lane go where they went; what comes behind it goes to the new place."""
    upstream = Upstream(keyed(7, "t"), keyed(8, "k"))
    upstream.rows("t", range(1, 41))
    upto_ts = upstream.now_ts
    behind = by_lane(7, 40)[1 - ahead][0]
    await apart(upstream, target, f"INSERT INTO d.t VALUES ({behind}, 'held')", ahead)
    reached = max(lanes(target))
    run(target, "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(64))")
    upstream.rows("t", range(41, 51))
    await whole_life(upstream, target, routes(("d", "t", "shop", "t")))
    by_then = (reached - 1000) // 10
    assert upto_ts >= reached
    assert ids(target, "d.t") == list(range(1, by_then + 1))
    assert ids(target, "shop.t") == list(range(by_then + 1, 51))


async def test_a_route_added_while_a_keyless_table_waits_for_its_lane(target: Target) -> None:
    upstream = Upstream(keyless(7, "t"), keyless(elsewhere(7), "u"))
    other = 1 - lane_of_table(7, LANES)
    for number in range(1, 41):
        upstream.transaction(("t", INSERT, (number, "t")), ("u", INSERT, (number, "u")))
    life = Running(upstream, target, routes())
    life.give(1000)
    await life.applied()
    with held(target, "LOCK TABLES d.t READ"):
        life.give()
        await life.reaches(other, upstream.now_ts)
        await life.kill()
    assert ids(target, "d.t") == []
    run(target, "CREATE TABLE shop.t (id INT, v VARCHAR(64))")
    await whole_life(upstream, target, routes(("d", "t", "shop", "t")))
    assert ids(target, "d.t") == list(range(1, 41))
    assert ids(target, "shop.t") == []


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_route_reloaded_and_a_kill(target: Target, ahead: int) -> None:
    """The answer says from where on; the rows before are in the old table, those behind in the new one."""
    run(target, "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(64))")
    upstream = Upstream(keyed(7, "t"))
    rules = routes(("d", "t", "shop", "t"))
    upstream.rows("t", range(1, 41))
    before_ts = upstream.now_ts
    life = Running(upstream, target, routes())
    life.give(1000)
    await life.applied()
    behind = by_lane(7, 40)[1 - ahead][0]
    with held(target, f"INSERT INTO d.t VALUES ({behind}, 'held')"):
        life.give()
        await life.until(lambda: life.runner.handed_over_ts >= before_ts)
        asked = asyncio.create_task(life.runner.rules.change(rules))
        await asyncio.sleep(0.2)
        assert not asked.done(), "the lanes have not come there"
    at_ts = await asked
    assert at_ts == before_ts
    assert set(lanes(target)) == {at_ts}
    upstream.rows("t", range(41, 81))
    fold = fold_id_of(7, ("shop", "t"))
    behind = next(one for one in by_lane(fold, 80)[1 - ahead] if one > 40)
    with held(target, f"INSERT INTO shop.t VALUES ({behind}, 'held')"):
        life.give()
        await life.reaches(ahead, before_ts + 100)
        await life.kill()
    await whole_life(upstream, target, rules)
    assert ids(target, "d.t") == list(range(1, 41))
    assert ids(target, "shop.t") == list(range(41, 81))


async def test_a_filter_reloaded_takes_nothing_that_came_before(target: Target) -> None:
    """Rows that were with a lane when it was asked for: killed before it could come into force, and after."""
    upstream = Upstream(keyed(7, "t"))
    upstream.rows("t", range(1, 41))
    rules = read_rules(replace(DrainerConfig(), ignore_table=({"db-name": "d", "tbl-name": "t"},)))
    life = Running(upstream, target, routes())
    life.give(1000)
    await life.applied()
    behind = by_lane(7, 40)[0][0]
    with held(target, f"INSERT INTO d.t VALUES ({behind}, 'held')"):
        life.give()
        await life.reaches(1, upstream.now_ts - 100)
        asked = asyncio.create_task(life.runner.rules.change(rules))
        await asyncio.sleep(0.2)
        assert not asked.done()
        await life.kill()
    asked.cancel()
    reached = (max(lanes(target)) - 1000) // 10
    upstream.rows("t", range(41, 51))
    await whole_life(upstream, target, rules)
    assert ids(target, "d.t") == list(range(1, reached + 1))


async def test_shards_beside_the_table_they_are_routed_to(target: Target) -> None:
    """Rows that move between the upstream tables stay: they are one table downstream."""
    rules = routes(("d", "orders_?", "d", "orders"))
    upstream = Upstream(keyed(1, "orders"), keyed(2, "orders_1"))
    for number in range(1, 101):
        here, there = ("orders", "orders_1") if number % 2 else ("orders_1", "orders")
        upstream.transaction((here, INSERT, (number, "a")))
        upstream.transaction((here, DELETE, (number, "a")))
        upstream.transaction((there, INSERT, (number, "b")))
    await whole_life(upstream, target, rules)
    assert ids(target, "d.orders") == list(range(1, 101))


async def test_what_goes_to_one_table_waits_together(target: Target) -> None:
    """A DDL of one shard waits; rows that move to the other one are there when the queue is released."""
    rules = routes(("d", "orders_?", "shop", "orders"))
    upstream = Upstream(keyed(1, "orders_1"), keyed(2, "orders_2"), keyed(3, "free"))
    upstream.rows("orders_1", range(1, 11))
    life = Running(upstream, target, rules)
    life.give()
    await life.applied()
    run(target, "INSERT INTO shop.orders VALUES (900, 'v1')")  # somebody's own: the key is refused
    upstream.add_unique("orders_1")
    for number in range(1, 11):
        upstream.transaction(("orders_1", DELETE, (number, f"v{number}")))
        upstream.transaction(("orders_2", INSERT, (number, f"w{number}")))
    upstream.rows("free", [1, 2])
    life.give()
    await life.until(lambda: ids(target, "d.free") == [1, 2])
    assert ids(target, "shop.orders") == [*range(1, 11), 900], "both shards wait"
    await life.kill()
    run(target, "DELETE FROM shop.orders WHERE id = 900")
    life = Running(upstream, target, rules)
    life.give()
    await life.until(lambda: ids(target, "d.free") == [1, 2])
    (waiting,) = life.sink.quarantine.documents()
    text = "ALTER TABLE shop.orders ADD UNIQUE KEY u (v)"  # orders_2 has none: it would wait for that
    await life.sink.quarantine.decide(waiting["job_id"], "rewrite", text, "here")
    upstream.rows("free", [3])
    life.give()
    await life.until(lambda: not life.sink.quarantine.waits)
    await life.stop()
    assert run(target, "SELECT id, v FROM shop.orders ORDER BY id") == [(n, f"w{n}") for n in range(1, 11)]


async def test_what_waits_keeps_its_route(target: Target) -> None:
    """Rules cannot send it elsewhere; other ones can change, and release runs its DDL where its rows are."""
    rules = routes(("d", "t", "shop", "t"))
    upstream = Upstream(keyed(1, "t"), keyed(3, "free"))
    upstream.rows("t", range(1, 4))
    life = Running(upstream, target, rules)
    life.give()
    await life.applied()
    run(target, "INSERT INTO shop.t VALUES (900, 'v1')")
    upstream.add_unique("t")
    upstream.rows("t", range(4, 8))
    upstream.rows("free", [1])
    life.give()
    await life.until(lambda: ids(target, "d.free") == [1])
    with pytest.raises(Rejected, match=r"d\.t waits"):
        life.runner.rules.check(routes(("d", "t", "shop", "other")))
    run(target, "CREATE TABLE shop.free (id INT PRIMARY KEY, v VARCHAR(64))")
    more = routes(("d", "t", "shop", "t"), ("d", "free", "shop", "free"))
    life.runner.rules.check(more)
    await life.runner.rules.change(more)
    upstream.rows("free", [2])
    life.give()
    await life.until(lambda: ids(target, "shop.free") == [2])
    await life.kill()
    with pytest.raises(ConfigError, match=r"d\.t waits"):
        Running(upstream, target, routes(("d", "t", "shop", "other")))
    run(target, "DELETE FROM shop.t WHERE id = 900")
    life = Running(upstream, target, more)
    life.give()
    await life.until(lambda: bool(life.sink.quarantine.documents()))
    (waiting,) = life.sink.quarantine.documents()
    await life.sink.quarantine.decide(waiting["job_id"], "retry", "", "here")
    upstream.rows("free", [3])
    life.give()
    await life.until(lambda: not life.sink.quarantine.waits)
    await life.stop()
    assert ids(target, "shop.t") == list(range(1, 8))
    assert (ids(target, "d.free"), ids(target, "shop.free")) == ([1], [2, 3])


class Logged(RelayLog):
    """What would go into a relay log, in pieces. `on_sync` is called before a sync is done."""

    keeps_payloads = False

    def __init__(self) -> None:
        self.items: list[tuple[Any, str | None]] = []
        self.on_sync: Callable[[], None] = lambda: None
        self.waiting_for = ""
        self.mark = LogMark()

    def watch(self, on_failed: object) -> None: ...
    def done(self, resolved_ts: int) -> None: ...
    async def close(self) -> None: ...

    @property
    def has_room(self) -> bool:
        return True

    def append(self, item: Any, text: str | None = None) -> None:
        self.items.append((item, text))

    async def sync(self, upto_ts: int = 0) -> None:
        self.on_sync()
        await asyncio.sleep(0.05)
        self.mark.reach(upto_ts)


async def test_a_large_transaction_is_logged_and_applied_by_the_same_rules(target: Target) -> None:
    """It is read twice; a reload comes between."""
    run(target, "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(64))")
    upstream, log = Upstream(keyed(7, "t")), Logged()
    at_ts = upstream.transaction(*(("t", INSERT, (number, "v")) for number in range(1, 6001)))
    upstream.large()
    life = Running(upstream, target, routes(), relay=log)
    asked: list[asyncio.Task[int]] = []

    def reload() -> None:
        if not asked and any(isinstance(item, Transaction) for item, _ in log.items):
            asked.append(asyncio.create_task(life.runner.rules.change(routes(("d", "t", "shop", "t")))))

    log.on_sync = reload
    life.give()
    await life.applied()
    assert await asked[0] == at_ts
    upstream.rows("t", [9001])
    life.give()
    await life.applied()
    await life.stop()
    logged = {
        (item.commit_ts, events.table.downstream)
        for item, _ in log.items
        if isinstance(item, Transaction)
        for events in item.tables
    }
    assert logged == {(at_ts, ("d", "t")), (upstream.now_ts, ("shop", "t"))}
    assert (len(ids(target, "d.t")), ids(target, "shop.t")) == (6000, [9001])


async def test_ddl_that_waits_is_in_the_relay_log(target: Target) -> None:
    """Refused or kept behind it, it comes before the rows that have its shape."""
    upstream, log = Upstream(keyed(7, "t"), keyed(8, "free")), Logged()
    upstream.rows("t", [1])
    life = Running(upstream, target, routes(), relay=log)
    life.give()
    await life.applied()
    run(target, "INSERT INTO d.t VALUES (900, 'v1')")
    refused = upstream.add_unique("t")
    wider = replace(upstream.tables["t"], columns=(*upstream.tables["t"].columns, column(3, "w", VARCHAR)))
    kept = upstream.alter(wider, ADD_COLUMN, "ADD COLUMN `w` VARCHAR(64)")
    upstream.transaction(("t", INSERT, (2, "v2", "w2")))
    last_ts = upstream.rows("free", [1])
    life.give()
    await life.until(lambda: ids(target, "d.free") == [1])
    await life.stop()
    places = [item.commit_ts for item, _ in log.items]
    assert places == sorted(places)
    ddls = [item.commit_ts for item, _ in log.items if isinstance(item, Ddl)]
    assert ddls[-2:] == [refused, kept]
    assert [item.commit_ts for item, _ in log.items if isinstance(item, Transaction)][-1] == last_ts


async def test_a_paused_drainer_takes_rules(target: Target) -> None:
    run(target, "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(64))")
    upstream = Upstream(keyed(7, "t"))
    at_ts = upstream.rows("t", range(1, 4))
    life = Running(upstream, target, routes())
    life.give()
    await life.applied()
    life.control.pause()
    upstream.rows("t", [4])
    life.give()
    await life.until(lambda: life.runner.doing.startswith("held back"))
    assert await life.runner.rules.change(routes(("d", "t", "shop", "t"))) == at_ts
    life.control.resume()
    await life.applied()
    await life.stop()
    assert (ids(target, "d.t"), ids(target, "shop.t")) == ([1, 2, 3], [4])


async def test_a_changed_spread_is_noticed_while_rows_go_on(target: Target) -> None:
    """A column and a unique key come downstream: nobody has to start the drainer again."""
    upstream = Upstream(keyed(7, "t"))
    life = Running(upstream, target, routes())
    upstream.rows("t", range(1, 5))
    life.give()
    await life.applied()
    run(target, "ALTER TABLE d.t CHANGE v V2 VARCHAR(64), ADD COLUMN v VARCHAR(64), ADD UNIQUE KEY extra (v)")
    run(target, "ALTER TABLE d.t DROP COLUMN V2")
    run(target, "ALTER TABLE d.t ADD COLUMN own INT NOT NULL")  # asks for a value: the table is read again
    run(target, "ALTER TABLE d.t MODIFY own INT NOT NULL DEFAULT 7")
    upstream.rows("t", range(5, 45))
    life.give()
    await life.applied()
    await life.stop()
    assert ids(target, "d.t") == list(range(1, 45))


async def test_another_spread_within_a_transaction_that_is_kept_whole(target: Target) -> None:
    """A shard that comes in a later piece shares its target with one of another key. Nothing of the
    transaction is said to be downstream before all of it is."""
    rules = routes(("d", "s?", "shop", "orders"))
    columns = (column(1, "id", LONGLONG, KEY), column(2, "v", VARCHAR))
    upstream = Upstream(keyed(1, "s1"), TableInfo(2, "s2", columns, pk_is_handle=True))
    shards = [("s1", number) for number in range(1, 5001)] + [("s2", number) for number in range(5001, 9001)]
    upstream.transaction(*((shard, INSERT, (number, "v")) for shard, number in shards))
    upstream.large()
    life = Running(upstream, target, rules, lanes=1, whole_transactions=True)
    life.give(1000)
    await life.applied()
    with held(target, "LOCK TABLES shop.orders READ"):
        life.give()
        await life.until(lambda: life.runner.rows == len(shards))
        assert ids(target, "shop.orders") == []
        killing = asyncio.create_task(life.kill())
        await asyncio.sleep(0)  # it is dead; its thread may be in a statement that waits for the table
    await killing
    life = Running(upstream, target, rules, lanes=1, whole_transactions=True)
    life.give()
    await life.applied()
    await life.stop()
    assert ids(target, "shop.orders") == list(range(1, 9001))


async def test_lanes_that_were_apart_become_one_where_transactions_are_kept_whole(
    target: Target,
) -> None:
    upstream = Upstream(keyed(7, "t"))
    upstream.rows("t", range(1, 41))
    behind = by_lane(7, 40)[0][0]
    await apart(upstream, target, f"INSERT INTO d.t VALUES ({behind}, 'held')", 1)
    life = Running(upstream, target, routes(), lanes=1, whole_transactions=True)
    life.give()
    await life.applied()
    await life.until(lambda: len(life.runner.lane_states()) == 1)
    upstream.rows("t", range(41, 51))
    life.give()
    await life.applied()
    await life.stop()
    assert ids(target, "d.t") == list(range(1, 51))


async def test_positions_of_another_hash_are_refused_while_lanes_are_apart(target: Target) -> None:
    upstream = Upstream(keyed(7, "t"))
    upstream.rows("t", range(1, 41))
    behind = by_lane(7, 40)[0][0]
    await apart(upstream, target, f"INSERT INTO d.t VALUES ({behind}, 'held')", 1)
    run(target, SET_HASH % (HASH_VERSION, 9))
    with pytest.raises(Corruption, match="hash version 9") as raised:
        Running(upstream, target, routes())
    assert "stop it gracefully" in raised.value.hint
    run(target, SET_HASH % (9, HASH_VERSION - 1))  # as the release before stored it
    await whole_life(upstream, target)
    assert ids(target, "d.t") == list(range(1, 41))
    ((header,),) = run(target, "SELECT definition FROM tidb_binlog.lane_basis WHERE fold = 0")
    assert f'"hash": {HASH_VERSION}' in header, "what is stored from now on is of this release"
    run(target, SET_HASH % (HASH_VERSION, 9))
    await whole_life(upstream, target)  # all lanes stand at one place


async def test_what_a_release_before_left_is_applied_as_it_would_have(target: Target) -> None:
    """No record is stored: a table beside shards that are routed to it is folded as it was, up to there."""
    rules = routes(("d", "x", "shop", "x"))
    upstream = Upstream(keyed(7, "t"))
    upstream.rows("t", range(1, 41))
    behind = by_lane(7, 40)[0][0]
    await apart(upstream, target, f"INSERT INTO d.t VALUES ({behind}, 'held')", 1)
    run(target, "DROP TABLE tidb_binlog.lane_basis")
    upstream.rows("t", range(41, 61))
    await whole_life(upstream, target, rules)
    assert ids(target, "d.t") == list(range(1, 61))
    ((count,),) = run(target, "SELECT COUNT(*) FROM tidb_binlog.lane_basis WHERE fold = 0")
    assert count == 1
