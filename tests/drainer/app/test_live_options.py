"""Every option of a Drainer is taken by a reload, and then has its effect, or is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drainer.app.operations import Operating
from drainer.config.options import DrainerConfig
from drainer.operate.control.pause_and_reload import RATE_FIELDS
from drainer.stream.rules.rule_set import RULE_FIELDS, Rules
from tests.cases import case
from tests.common.support.other_values import other_value
from tidb_binlog.clock import SystemClock
from tidb_binlog.config.declaring import options
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.door.limits import Limits
from tidb_binlog.errors import ConfigError
from tidb_binlog.serving.reload import LOG_FIELDS, changes
from tidb_binlog.serving.starting import Starting

OPTIONS = options(DrainerConfig)
CERTIFICATES = ("cert_allowed_cn", "cert_read_cn", "cert_write_cn", "cert_admin_cn")
ELSEWHERE = {*options(Limits), "admin_from", *CERTIFICATES, *LOG_FIELDS}
"""Taken by the listener and the log: tests/common/serving/."""
STREAM = {*RULE_FIELDS, "ddl_rules", "checkpoint_interval_s", "txn_batch"}
TAKEN = {*ELSEWHERE, *RATE_FIELDS, *STREAM}


def test_an_option_is_live_or_named() -> None:
    for name in OPTIONS:
        with case(name):
            before = DrainerConfig()
            found = changes(before, replace(before, **{name: other_value(before, name)}))
            key = OPTIONS[name].key or f"-{OPTIONS[name].flag}"
            assert (found.live, found.fixed) == (({name: key}, {}) if name in TAKEN else ({}, {name: key}))


class Stream:
    """A runner, as far as a reload reaches it."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.rules = SimpleNamespace(check=lambda rules: None, change=self._rules, made_of={})
        self.sink = SimpleNamespace(set_ddl_rules=self.taken.append)
        self.change_interval = self.taken.append

    async def _rules(self, rules: Rules) -> int:
        self.taken.append(rules)
        self.rules.made_of = rules.rows.made_of
        return 7


class Life:
    def __init__(self) -> None:
        self.file = DrainerConfig()
        nothing: Any = None
        starting = Starting(0.0, SystemClock(), lambda text: None)
        self.operating = Operating(
            self.file, lambda: self.file, nothing, Routes(), SystemClock(), None, starting
        )

    async def change(self, **values: Any) -> list[str]:
        self.file = replace(self.file, **values)
        return (await self.operating.reload.run()).keys


async def test_each_live_option_has_somebody_who_takes_it() -> None:
    """Before there is a stream, too; and the same when it was interrupted."""
    life, stream = Life(), Stream()

    def hooked() -> frozenset[str]:
        return life.operating.reload.taken

    assert hooked() == TAKEN - ELSEWHERE
    life.operating.follow(stream)  # type: ignore[arg-type]
    assert hooked() == TAKEN - ELSEWHERE


async def test_rules_are_checked_while_there_is_no_stream_and_taken_by_one_that_runs() -> None:
    life, stream = Life(), Stream()
    with pytest.raises(ConfigError, match="empty schema name"):
        await life.change(ignore_table=({"db-name": ""},))
    life.file = replace(life.file, ignore_table=())
    with pytest.raises(ConfigError):
        await life.change(ddl_rules=({"action": "what"},))
    life.file = replace(life.file, ddl_rules=())
    assert await life.change(ignore_schemas="a") == ["syncer.ignore-schemas"]
    assert life.operating.reload.settings.ignore_schemas == "a", "what a stream will be built with"
    life.operating.follow(stream)  # type: ignore[arg-type]
    await life.change(sync_ddl=False, checkpoint_interval_s=3.0, rate_rows=5)
    (rules, pace) = stream.taken
    assert (rules.sync_ddl, pace) == (False, 3.0)
    assert life.operating.control.limits.rows == 5
    life.operating.interrupt("gone", went_back=False)
    await life.change(sync_ddl=True)
    assert len(stream.taken) == 2, "one that is gone is not asked"


@pytest.mark.parametrize("name", sorted(RULE_FIELDS))
async def test_each_rule_reaches_the_stream_with_all_others(name: str) -> None:
    """Their effect at a drained point: tests/drainer/checkpoint/test_lane_basis_mariadb.py."""
    values: dict[str, Any] = {
        "replicate_do_table": ({"db-name": "a", "tbl-name": "b"},),
        "ignore_table": ({"db-name": "a", "tbl-name": "b"},),
        "ignore_txn_commit_ts": (5,),
        "table_migrate_rule": ({"source": {"schema": "a"}, "target": {"schema": "b"}},),
        "binlog_filter_rule": {"no-deletes": {"ignore-event": ["delete"]}},
        "column_rule": ({"db-name": "a", "tbl-name": "b", "columns": ["c"]},),
        "row_rule": ({"db-name": "a", "tbl-name": "b", "where": "c > 1"},),
    }
    life, stream = Life(), Stream()
    life.operating.follow(stream)  # type: ignore[arg-type]
    before = DrainerConfig()
    await life.change(**{name: values.get(name, other_value(before, name))})
    (rules,) = stream.taken
    assert f'"{name}"' in rules.text


async def test_a_file_that_a_rule_names_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module of a function, the salt of a mask: the options are what they were. A function that is in
    force stays what it is."""
    module, salt = tmp_path / "rules_of_this_test.py", tmp_path / "salt"
    monkeypatch.syspath_prepend(str(tmp_path))
    name = {"db-name": "a", "tbl-name": "b"}
    module.write_text("FROM = 1\ndef clean(row):\n    return FROM\n")
    salt.write_text("0123456789abcdef")
    life, stream = Life(), Stream()
    life.operating.follow(stream)  # type: ignore[arg-type]
    given = (
        {**name, "python": "rules_of_this_test:clean"},
        {**name, "mask": {"c": "hash"}, "salt-file": str(salt)},
    )
    assert await life.change(row_rule=given) == ["syncer.row-rule"]
    assert await life.change() == []
    module.write_text("FROM = 2\ndef clean(row):\n    return FROM\n")
    assert await life.change() == ["syncer.row-rule"]
    salt.write_text("fedcba9876543210")
    assert await life.change() == ["syncer.row-rule"]
    assert await life.change() == []
    found = [rules.rows.of_table("a", "b")[0].python.function(None) for rules in stream.taken]
    assert found == [1, 2, 2]
    assert len({rules.text for rules in stream.taken}) == 3
    module.write_text("def clean(row:\n")
    with pytest.raises(ConfigError, match="cannot be imported: SyntaxError"):
        await life.change()
    assert len(stream.taken) == 3
