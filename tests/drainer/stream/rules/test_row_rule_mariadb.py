"""Row rules end to end on a real MariaDB: downstream is what the rules take of upstream, whatever dies."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.changes.model import Row
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.quoting import quote_name
from drainer.stream.pull.merged import Merged
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.txn import DELETE, INSERT, UPDATE
from tests.drainer.stream.rules.made_tables import KEY, Made, contents
from tests.drainer.support.apply_life import Life, clean, column, create_job, created, stored_ts
from tidb_binlog import binlog
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import FLAG_NOT_NULL, LONG, VARCHAR, Index, IndexColumn, TableInfo

pytestmark = pytest.mark.integration
SALT = "0123456789abcdef0123456789abcdef"
KEYED = TableInfo(
    1,
    "t",
    (column(1, "id", LONG, KEY), column(2, "name", VARCHAR, FLAG_NOT_NULL), column(3, "secret", VARCHAR)),
    (Index(2, "u", (IndexColumn("name", 1),), unique=True, primary=False),),
    pk_is_handle=True,
)
KEYLESS = TableInfo(
    2, "log", (column(1, "id", LONG), column(2, "name", VARCHAR), column(3, "secret", VARCHAR))
)
Image = dict[str, Any]


def rules(*given: dict[str, Any], **settings: Any) -> Rules:
    named = tuple({"db-name": "d", "tbl-name": "~.*", **rule} for rule in given)
    return read_rules(replace(DrainerConfig(), row_rule=named, **settings))


class Workload(Made):
    """Random transactions on both tables; `tables` is what upstream holds."""

    def __init__(self, seed: int) -> None:
        super().__init__(KEYED, KEYLESS)
        unique = (
            "CREATE TABLE `t` (`id` INT PRIMARY KEY, `name` VARCHAR(64) NOT NULL, `secret` VARCHAR(64),"
            " UNIQUE u(`name`))"
        )
        keyless = "CREATE TABLE `log` (`id` INT, `name` VARCHAR(64), `secret` VARCHAR(64))"
        jobs = [
            {**create_job(table, job_id=10 + number, schema_version=number), "query": query}
            for number, (table, query) in enumerate(((KEYED, unique), (KEYLESS, keyless)), 1)
        ]
        self.recording.entries = [created(job, 900 + 10 * number) for number, job in enumerate(jobs)]
        self.recording.jobs[:] = [json.dumps(job).encode() for job in jobs]
        self.draw = random.Random(seed)
        self.rows: dict[str, dict[int, Image]] = {"t": {}, "log": {}}
        self.ts = 1000
        self.rowids = 0

    def changes(self, count: int) -> None:
        for _ in range(count):
            self.ts += 10
            self._transaction(self.draw.randint(1, 6))

    def _transaction(self, size: int) -> None:
        by_table: dict[str, tuple[list[int], list[bytes]]] = {"t": ([], []), "log": ([], [])}
        for _ in range(size):
            name = self.draw.choice(("t", "log"))
            kinds, rows = by_table[name]
            kind, row = self._change(name)
            kinds.append(kind)
            rows.append(row)
        tables = [(self.encoders[name][0], *found) for name, found in by_table.items() if found[0]]
        start_ts = self.ts - 1
        value = prewrite_value(self.version, tables)
        payload = binlog.join(binlog.prewrite(start_ts, b"k", value), binlog.commit(start_ts, self.ts, b"k"))
        self.recording.entries.append(Merged(self.ts, payload))

    def _change(self, name: str) -> tuple[int, bytes]:
        """`t`: rows by id; names are free of each other. `log`: rows by their hidden id, often alike."""
        draw, rows, encoder = self.draw, self.rows[name], self.encoders[name][1]
        kind = draw.choice((INSERT, UPDATE, DELETE)) if rows else INSERT
        old_id = draw.choice(list(rows)) if kind != INSERT else 0
        old = rows.get(old_id)
        number = draw.choice([one for one in range(30) if name == "log" or one not in rows or one == old_id])
        if kind == UPDATE and name == "t" and draw.random() < 0.8:
            number = old_id  # most keep their key
        taken = {one["name"] for place, one in rows.items() if place != old_id} if name == "t" else set()
        text = draw.choice([one for one in (f"n{n}" for n in range(60)) if one not in taken])
        new = {"id": number, "name": text, "secret": draw.choice([None, "x", "y"])}
        self.rowids += 1
        rowid = old_id if name == "log" and kind != INSERT else self.rowids
        if kind != INSERT:
            del rows[old_id]
        if kind != DELETE:
            rows[number if name == "t" else rowid] = new
        if kind == INSERT:
            return kind, encoder.insert(new, rowid)
        return kind, encoder.update(old or {}, new, rowid) if kind == UPDATE else encoder.delete(
            old or {}, rowid
        )

    def wanted(self, holds: Any) -> dict[str, list[str]]:
        """Contents downstream, as `contents` has them."""
        return {
            name: sorted(repr((one["id"], one["name"], one["secret"])) for one in rows.values() if holds(one))
            for name, rows in self.rows.items()
        }


@pytest.fixture
def downstream(target: Target) -> Target:
    clean(target)
    connection = connect(target)
    connection.run(b"CREATE DATABASE d")
    connection.close()
    return target


def found(target: Target) -> dict[str, list[str]]:
    return {name: rows for name, (_, rows) in contents(target)["d"].items()}


def holds(row: Image) -> bool:
    return bool(row["id"] >= 10 or row["secret"] == "x")


@pytest.mark.parametrize("lanes", [1, 3])
async def test_what_is_downstream_is_what_the_condition_takes(downstream: Target, lanes: int) -> None:
    work = Workload(lanes)
    wanted = rules({"where": "id >= 10 OR secret = 'x'"})
    for _ in range(6):
        work.changes(60)
        await Life(work.recording, downstream, lanes, 20, rules=wanted).run(dies_at_ts=work.ts - 300)
        assert await Life(work.recording, downstream, lanes, 20, rules=wanted).run()
        assert found(downstream) == work.wanted(holds)


async def test_another_condition_counts_for_what_comes_after_it(downstream: Target) -> None:
    """Rows that are there although the condition takes them no more, and rows that are not although it does,
    are no error: they are as the condition says once they change."""
    work = Workload(7)
    for number, (text, check) in enumerate(
        [
            ("id >= 10 OR secret = 'x'", holds),
            ("secret IS NOT NULL", lambda row: row["secret"] is not None),
            ("id < 20", lambda row: row["id"] < 20),
        ]
    ):
        work.changes(80)
        if number:
            work.rows["log"].clear()  # compared while one condition holds
        assert await Life(work.recording, downstream, rules=rules({"where": text, "tbl-name": "t"})).run()
        if not number:
            assert found(downstream)["t"] == work.wanted(check)["t"]
    # All rows change once more under the last condition, and are what it says.
    assert work.rows["t"]
    encoder = work.encoders["t"][1]
    work.ts += 10
    rows = [encoder.update(row, {**row, "secret": "last"}) for row in work.rows["t"].values()]
    value = prewrite_value(work.version, [(1, [UPDATE] * len(rows), rows)])
    start_ts = work.ts - 1
    payload = binlog.join(binlog.prewrite(start_ts, b"k", value), binlog.commit(start_ts, work.ts, b"k"))
    work.recording.entries.append(Merged(work.ts, payload))
    assert await Life(work.recording, downstream, rules=rules({"where": "id < 20", "tbl-name": "t"})).run()
    there = {row for row in found(downstream)["t"] if "'last'" in row}
    assert there == {
        repr((one["id"], one["name"], "last")) for one in work.rows["t"].values() if one["id"] < 20
    }


async def test_rows_that_the_condition_takes_no_more_go_once_they_change(downstream: Target) -> None:
    """Narrower, wider, without, narrower: between two lives, of which some die. Then each row is touched or
    deleted, and downstream is what the last condition takes of upstream."""
    work = Workload(13)
    given: list[dict[str, Any]] = [{"where": "id < 25"}, {"where": "id < 10 OR secret = 'x'"}, {}, {}]
    given += [{"where": "id >= 10 OR secret = 'x'"}]
    for number, rule in enumerate(given, 1):
        work.changes(60 if number < len(given) else 2)
        now = rules({**rule, "tbl-name": "t"}) if rule else rules()
        await Life(work.recording, downstream, 3, 20, rules=now).run(dies_at_ts=work.ts - 10)
        assert await Life(work.recording, downstream, 3, 20, rules=now).run()
    assert found(downstream)["t"] != work.wanted(holds)["t"]
    encoder, upstream = work.encoders["t"][1], work.rows["t"]
    kinds, rows = [], []
    for number, (place, row) in enumerate(list(upstream.items())):
        kinds.append(UPDATE if number % 2 else DELETE)
        changed = {**row, "name": f"last{place}"}
        rows.append(encoder.update(row, changed) if number % 2 else encoder.delete(row))
        del upstream[place]
        if number % 2:
            upstream[place] = changed
    work.ts += 10
    value = prewrite_value(work.version, [(1, kinds, rows)])
    payload = binlog.join(
        binlog.prewrite(work.ts - 1, b"k", value), binlog.commit(work.ts - 1, work.ts, b"k")
    )
    work.recording.entries.append(Merged(work.ts, payload))
    assert await Life(work.recording, downstream, 3, 20, rules=now).run()
    assert found(downstream)["t"] == work.wanted(holds)["t"]


async def test_masked_rows_are_found_again_by_their_masks(downstream: Target, tmp_path: Path) -> None:
    salt = tmp_path / "salt"
    salt.write_text(SALT)
    work = Workload(11)
    wanted = rules(
        {"mask": {"name": "hash", "secret": {"value": "-"}}, "salt-file": str(salt)},
        {"where": "id <> 5"},
    )
    for _ in range(3):
        work.changes(60)
        await Life(work.recording, downstream, 3, 20, rules=wanted).run(dies_at_ts=work.ts - 300)
        assert await Life(work.recording, downstream, 3, 20, rules=wanted).run()

    def masked(row: Image) -> tuple[Any, ...]:
        name = hmac.digest(SALT.encode(), row["name"].encode(), hashlib.sha256).hex()[:32]
        return row["id"], name, row["secret"] and "-"

    assert found(downstream) == {
        name: sorted(repr(masked(one)) for one in rows.values() if one["id"] != 5)
        for name, rows in work.rows.items()
    }
    connection = connect(downstream)
    names = [name for (name,) in connection.rows(b"SHOW TABLES FROM tidb_binlog")]
    stored = repr([connection.rows(b"SELECT * FROM tidb_binlog." + quote_name(name)) for name in names])
    connection.close()
    assert str(salt) in stored
    assert SALT not in stored


FAILS: set[int] = set()


def picky(row: Row) -> Row | None:
    image = row.after or row.before
    assert image is not None
    if image["id"] in FAILS:
        raise LookupError(f"nobody knows {image['id']}")
    return None if image["id"] == 3 else row


async def test_a_function_that_raises_stops_the_drainer_and_loses_nothing(downstream: Target) -> None:
    made = Made(KEYED)
    for number in range(1, 6):
        made.transaction(1000 + 10 * number, ("t", INSERT, (number, f"n{number}", None)))
    wanted = rules({"python": f"{__name__}:picky"})
    FAILS.add(4)
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"picky raised LookupError: nobody knows 4, for a row of d.t .* 1040"
        ):
            await Life(made.recording, downstream, rules=wanted).run()
        assert "(4" not in repr(found(downstream)["t"])
    FAILS.clear()
    assert await Life(made.recording, downstream, rules=wanted).run()
    assert found(downstream)["t"] == [repr((number, f"n{number}", None)) for number in (1, 2, 4, 5)]


async def test_a_renamed_column_of_a_rule_stops_the_rows_after_the_ddl_until_the_rule_has_its_name(
    downstream: Target,
) -> None:
    work = Workload(3)
    work.changes(30)
    before = {"where": "secret IS NOT NULL", "mask": {"secret": {"value": "-"}}, "tbl-name": "t"}
    assert await Life(work.recording, downstream, rules=rules(before)).run()
    columns = (*KEYED.columns[:2], replace(KEYED.columns[2], name="hidden"))
    renamed = replace(KEYED, columns=columns)
    work.ts += 10
    work.version += 1
    job = {
        **create_job(renamed, job_id=60, schema_version=work.version),
        "type": ActionType.MODIFY_COLUMN,
        "query": "ALTER TABLE `t` CHANGE `secret` `hidden` VARCHAR(64)",
    }
    work.recording.jobs.append(json.dumps(job).encode())
    work.recording.entries.append(created(job, work.ts))
    ddl_ts = work.ts
    work.encoders["t"] = (1, RowEncoder(renamed))
    work.ts += 10
    row = RowEncoder(renamed).insert({"id": 1000, "name": "new", "hidden": "private"})
    value = prewrite_value(work.version, [(1, [INSERT], [row])])
    payload = binlog.join(
        binlog.prewrite(work.ts - 1, b"k", value), binlog.commit(work.ts - 1, work.ts, b"k")
    )
    work.recording.entries.append(Merged(work.ts, payload))
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"names column secret, which d.t does not have \(it has id, name, hidden"
        ):
            await Life(work.recording, downstream, rules=rules(before)).run()
        assert "private" not in repr(contents(downstream))
        assert stored_ts(downstream) == ddl_ts
    after = {"where": "hidden IS NOT NULL", "mask": {"hidden": {"value": "-"}}, "tbl-name": "t"}
    assert await Life(work.recording, downstream, rules=rules(after)).run()
    assert repr((1000, "new", "-")) in found(downstream)["t"]
    assert "private" not in repr(contents(downstream))
