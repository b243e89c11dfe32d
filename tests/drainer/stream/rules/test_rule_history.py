"""Rules from where on in the stream, and made again of what is stored."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from drainer.app.relay_setup import routes_then
from drainer.checkpoint.lane_basis import StoredBasis
from drainer.config.options import DrainerConfig
from drainer.relay.source import RelaySchema
from drainer.stream.rules.rule_history import RuleChange, RuleHistory, asked_text, rules_from
from drainer.stream.rules.rule_set import RULE_FIELDS, Rules, read_rules
from drainer.txn import Ddl
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Corruption, Rejected
from tidb_binlog.serving.reload import Commit, Reload


def configured(**settings: object) -> Rules:
    return read_rules(replace(DrainerConfig(), **settings))  # type: ignore[arg-type]


ROUTE = {"source": {"schema": "d", "table": "t?"}, "target": {"schema": "shop", "table": "t"}}
FULL = configured(
    ignore_schemas="a,b",
    replicate_do_db=("~^d", "e"),
    replicate_do_table=({"db-name": "d", "tbl-name": "t1"},),
    ignore_table=({"db-name": "d", "tbl-name": "~x$"},),
    ignore_txn_commit_ts=(7, "8"),
    case_sensitive=True,
    table_migrate_rule=({**ROUTE, "binlog-filter-rule": ["quiet"]},),
    binlog_filter_rule={"quiet": {"ignore-event": ["delete"], "ignore-sql": ["^DROP"]}},
    column_rule=({"db-name": "d", "tbl-name": "t1", "ignore-columns": ["c"]},),
    row_rule=({"db-name": "d", "tbl-name": "t1", "where": "a > 1", "mask": {"b": "null"}},),
    sync_ddl=False,
    loopback_control=True,
    channel_id=3,
)
PLAIN, ROUTED = configured(), configured(table_migrate_rule=(ROUTE,))


def test_rules_are_what_they_were_when_made_again_of_their_text() -> None:
    again = rules_from(FULL.text)
    assert again.text == FULL.text != PLAIN.text
    for name in (("d", "t1"), ("d", "tx"), ("e", "u"), ("f", "u"), ("tidb_binlog", "lanes")):
        assert again.allows(*name) == FULL.allows(*name)
        assert again.router.route(*name) == FULL.router.route(*name)
        assert again.events.ignored_rows(*name) == FULL.events.ignored_rows(*name)
    assert (again.passed_over, again.sync_ddl, again.channel_id) == ({7, 8}, False, 3)
    assert again.router.route("d", "t1") == ("shop", "t")
    assert not again.columns.is_empty
    assert [(one.where, one.masks) for one in again.rows.of_table("d", "t1")] == [
        (one.where, one.masks) for one in FULL.rows.of_table("d", "t1")
    ]


def test_rules_without_rows_are_stored_as_older_releases_read_them() -> None:
    assert "row_rule" not in json.loads(PLAIN.text)
    assert "row_rule" in json.loads(FULL.text)


def test_eras_begin_behind_their_place_and_go_when_nothing_of_them_comes_again() -> None:
    history = RuleHistory.since(0, PLAIN).followed_by(10, ROUTED).followed_by(20, FULL)
    assert [history.at(ts) for ts in (1, 10, 11, 20)] == [PLAIN, PLAIN, ROUTED, ROUTED]
    assert asked_text(history.at(21).text) == FULL.text
    assert [era.after_ts for era in history.since_floor(9).eras] == [0, 10, 20]
    assert [era.after_ts for era in history.since_floor(10).eras] == [10, 20]
    assert history.since_floor(20).eras == history.eras[-1:]
    again = RuleHistory.from_json(history.to_json(), [PLAIN])
    assert again.eras[0].rules is PLAIN
    assert [era.rules.text for era in again.eras] == [era.rules.text for era in history.eras]
    twice = history.followed_by(20, PLAIN).at(21)
    assert asked_text(twice.text) == PLAIN.text, "twice at one place: the later counts"


def test_rules_know_by_which_conditions_rows_went_out_before() -> None:
    """Each set once, without that of now; a table without rules costs nothing."""
    wheres = [None, "a > 1", "a > 2", "a > 2", "a > 1", None, "a > 3"]
    history = RuleHistory.since(0, configured())
    for ts, where in enumerate(wheres):
        rule = {"db-name": "d", "tbl-name": "t1", "where": where, "mask": {"b": "null"}}
        wanted = configured(row_rule=(rule,) if where else ())
        history = RuleHistory.from_json(history.followed_by(ts, wanted).since_floor(ts).to_json())
        assert asked_text(history.last.text) == wanted.text
        before = {json.dumps(one) for one in json.loads(history.last.text).get("earlier_row_rules", ())}
        names = {"db-name": "d", "tbl-name": "t1"}
        assert before == {
            json.dumps([{**names, "where": one}] if one else []) for one in {*wheres[:ts]} - {where}
        }
        assert history.last.rows.withholds("d", "t1") == any(wheres[: ts + 1])
        assert not history.last.rows.withholds("d", "t2")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '[{"after": 1}]', '[{"after": 1, "rules": "x"}]'])
def test_what_was_never_stored_is_damage(text: str) -> None:
    with pytest.raises(Corruption, match="lanes' positions belong to"):
        RuleHistory.from_json(text)


def test_rules_of_a_newer_release_are_refused_with_what_to_do() -> None:
    text = json.dumps({**json.loads(PLAIN.text), "sample_rows": 2})
    with pytest.raises(ConfigError, match="sample_rows") as raised:
        rules_from(text)
    assert "newer release" in raised.value.hint


def test_ddl_of_a_relay_log_goes_where_its_table_went_then() -> None:
    history = RuleHistory.since(0, PLAIN).followed_by(10, ROUTED)
    schema = RelaySchema()
    route = routes_then(StoredBasis(history.to_json()), PLAIN, schema)
    for commit_ts, name in ((9, ("d", "t1")), (11, ("shop", "t"))):
        schema.pass_ddl(Ddl(commit_ts, 1, 5, "d", "ALTER", (("d", "t1"),), 1))
        assert route()("d", "t1") == name
    assert routes_then(None, ROUTED, schema)()("d", "t1") == ("shop", "t")


def test_a_start_says_that_a_function_is_another_one_and_takes_it_as_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = tmp_path / "rules_of_a_start.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    module.write_text("def clean(row): return row\n")

    def now() -> Rules:
        return configured(row_rule=({"db-name": "d", "tbl-name": "t", "python": "rules_of_a_start:clean"},))

    class Stream:
        def replay(self, history: RuleHistory) -> None:
            self.history = history

    stored = RuleHistory.since(0, now()).to_json()
    for edited in (False, True):
        if edited:
            module.write_text("def clean(row): return None\n")
        basis = StoredBasis(stored)
        change = RuleChange(Stream(), now(), basis)  # type: ignore[arg-type]
        assert change.due is edited
        assert ("`row-rule` 1: python is another one" in caplog.text) is edited


def test_a_wider_filter_says_which_rows_are_missing_and_what_brings_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stream:
        def replay(self, history: RuleHistory) -> None: ...
        def take_rules(self, rules: Rules) -> None: ...
        def names(self) -> list[tuple[str, str]]:
            return [("d", f"t{number:02}") for number in range(25)] + [("e", "u"), ("tidb_binlog", "lanes")]

    narrow, wide = configured(replicate_do_db=("e",)), configured(replicate_do_db=("e", "d"))
    change = RuleChange(Stream(), wide, StoredBasis(RuleHistory.since(0, narrow).to_json()))  # type: ignore[arg-type]
    change.take(change.following(1000, 999))
    assert [change.at(ts).text for ts in (1000, 1001)] == [narrow.text, wide.text]
    (record,) = (record for record in caplog.records if "are not downstream" in record.getMessage())
    fields = record.fields  # type: ignore[attr-defined]
    assert (fields["tables"], fields["more"]) == ([f"d.t{number:02}" for number in range(20)], 5)
    assert "binlogctl load -tables 'd.t00,d.t01," in fields["hint"]
    change = RuleChange(Stream(), narrow, StoredBasis(RuleHistory.since(0, wide).to_json()))  # type: ignore[arg-type]
    caplog.clear()
    change.take(change.following(1000, 1000))
    assert "are not downstream" not in caplog.text


BEFORE = DrainerConfig()
AFTER = replace(BEFORE, sync_ddl=not BEFORE.sync_ddl)


class World:
    """A reload of the one into the other that waits for its place."""

    def __init__(self) -> None:
        self.change = RuleChange(None, read_rules(BEFORE), None)
        self.reload = Reload(BEFORE, lambda: AFTER, SystemClock())
        self.reload.add(RULE_FIELDS, self._prepare, placed=True)
        self.asker = asyncio.create_task(self.reload.run())

    def _prepare(self, fresh: DrainerConfig) -> Commit:
        rules: Rules = read_rules(fresh)
        return lambda: self.change.asked_for(rules, lambda: None, lambda: "nothing")

    async def begun(self) -> None:
        while not self.change.asked:
            await asyncio.sleep(0)


async def test_rules_that_are_stored_while_the_asker_goes_away_are_the_configuration() -> None:
    """Whatever is built anew later begins with what is in force."""
    world = World()
    await world.begun()
    with world.change.taking(1000, 1000) as history:
        world.asker.cancel()
        await asyncio.sleep(0)
        world.change.take(history)
    await asyncio.wait({world.asker})
    assert world.reload.settings == AFTER
    assert not world.change.due


async def test_rules_that_could_not_be_stored_are_not_the_configuration() -> None:
    world = World()
    await world.begun()

    async def store() -> None:
        with world.change.taking(1000, 1000):
            world.asker.cancel()
            await asyncio.sleep(0)
            raise OSError

    with pytest.raises(OSError):
        await store()
    with pytest.raises(Rejected):
        await world.asker
    assert world.reload.settings == BEFORE


async def test_rules_whose_asker_went_away_before_are_not_taken() -> None:
    world = World()
    await world.begun()
    world.asker.cancel()
    await asyncio.wait({world.asker})
    assert not world.change.asked
    assert world.reload.settings == BEFORE
