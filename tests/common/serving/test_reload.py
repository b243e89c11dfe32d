"""A reload takes what is live and names what waits; a file that is wrong changes nothing."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tidb_binlog.clock import ManualClock
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError, Rejected
from tidb_binlog.observe import log
from tidb_binlog.observe.metrics import REGISTRY
from tidb_binlog.serving.reload import Commit, Reload, add_logging, changes, following


@dataclass(frozen=True, slots=True)
class Config:
    pace: int = option(1, key="pace", kind="int", help="", live=True)
    filter: str = option("", key="room.filter", help="", live=True)
    rules: str = option("", key="room.rules", help="", live=True)
    noted: int = option(0, key="noted", kind="int", help="", live=True)
    port: int = option(1, key="port", kind="int", help="")
    peers: str = option("", key="peers", help="")
    log_level: str = option("info", key="log-level", help="", live=True)
    log_file: str = option("", key="log-file", help="", live=True)
    log_format: str = option("tidb", key="log-format", help="", live=True)


class Living:
    """A daemon's live options, and what was put in place of them."""

    def __init__(self) -> None:
        self.file = Config()
        self.placed: list[str] = []
        self.reload = Reload(self.file, lambda: self.file, ManualClock())
        self.reload.add(["filter"], self.prepare("filter"))
        self.reload.add(["pace"], self.prepare("pace"))

    def prepare(self, name: str) -> Callable[[Config], Commit]:
        def check(fresh: Config) -> Commit:
            if fresh.pace == 13:
                raise ConfigError("pace is 13", hint="another one")
            return lambda: self.placed.append(name)

        return check


def gauge(name: str) -> float:
    return REGISTRY.get_sample_value(f"binlog_common_config_{name}") or 0.0


def total(result: str) -> float:
    name = "binlog_common_config_reloads_total"
    return REGISTRY.get_sample_value(name, {"result": result}) or 0.0


async def test_what_did_not_change_is_left_alone() -> None:
    living = Living()
    assert (await living.reload.run()).keys == []
    assert living.placed == []


async def test_live_options_take_effect_and_are_named() -> None:
    living = Living()
    living.file = replace(living.file, pace=7, filter="x", noted=3)
    assert (await living.reload.run()).keys == ["noted", "pace", "room.filter"]
    assert living.placed == ["filter", "pace"]
    assert living.reload.settings == living.file
    assert (await living.reload.run()).keys == [], "they are the present ones now"


async def test_what_needs_a_restart_is_named_at_each_reload_and_the_rest_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    living = Living()
    living.file = replace(living.file, pace=7, port=2, peers="b")
    found = await living.reload.run()
    assert (found.keys, found.needs_restart) == (["pace"], ["peers", "port"])
    assert living.placed == ["pace"]
    assert living.reload.settings == Config(pace=7)
    assert (await living.reload.run()).needs_restart == ["peers", "port"]
    lines = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert lines == ["peers: needs a restart", "port: needs a restart"] * 2
    living.file = replace(living.file, port=1, peers="")
    assert (await living.reload.run()).needs_restart == []


async def test_what_has_a_place_in_the_stream_goes_first_and_says_where() -> None:
    living = Living()

    async def placed() -> int:
        living.placed.append("rules")
        if living.file.rules == "good":
            return 4711
        raise Rejected("no place", hint="again")

    living.reload.add(["rules"], lambda _fresh: placed, placed=True)
    living.file = replace(living.file, pace=7, rules="good")
    found = await living.reload.run()
    assert (found.keys, found.commit_ts) == (["pace", "room.rules"], 4711)
    assert living.placed == ["rules", "pace"]
    living.file = replace(living.file, pace=8, rules="bad")
    with pytest.raises(Rejected, match="no place"):
        await living.reload.run()
    assert living.placed == ["rules", "pace", "rules"], "nothing else was changed"
    assert living.reload.settings.pace == 7


async def test_a_wrong_value_changes_nothing_not_even_what_came_before_it() -> None:
    living = Living()
    living.file = replace(living.file, filter="x", pace=13)
    with pytest.raises(ConfigError, match="pace"):
        await living.reload.run()
    assert living.placed == []
    assert living.reload.settings == Config()


async def test_a_file_that_cannot_be_read_changes_nothing_and_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    living = Living()
    failures, successes = total("failure"), total("success")

    def broken() -> Config:
        raise ConfigError("config file p.toml is not TOML (line 3)", hint="correct the file")

    living.reload._read, read = broken, living.reload._read
    await living.reload.on_signal()  # nobody to raise it to
    assert living.placed == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    status = living.reload.status
    assert (status.ok, status.changed) == (False, [])
    assert "p.toml is not TOML (line 3)" in status.error
    assert (gauge("last_reload_successful"), total("failure")) == (0.0, failures + 1)
    living.reload._read = read
    living.file = replace(living.file, pace=7, port=2)
    await living.reload.on_signal()
    status = living.reload.status
    assert (status.ok, status.error, status.changed, status.needs_restart) == (True, "", ["pace"], ["port"])
    assert (gauge("last_reload_successful"), total("success")) == (1.0, successes + 1)
    assert gauge("last_reload_success_timestamp_seconds") == status.time_s == living.reload._clock.wall_s()


async def test_what_nobody_expected_is_a_reload_that_failed_too() -> None:
    living = Living()

    def broken(_fresh: Config) -> Commit:
        raise ValueError("no such thing")

    living.reload.add(["rules"], broken)
    living.file = replace(living.file, rules="bad")
    with pytest.raises(ValueError):
        await living.reload.run()
    assert (living.reload.status.ok, gauge("last_reload_successful")) == (False, 0.0)
    assert "ValueError: no such thing" in living.reload.status.error


async def test_who_builds_something_of_the_settings_keeps_a_reload_out() -> None:
    import asyncio

    living = Living()
    living.file = replace(living.file, pace=7)
    async with living.reload.kept_out() as settings:
        assert settings.pace == 1
        asked = asyncio.create_task(living.reload.run())
        for _ in range(5):
            await asyncio.sleep(0)
        assert (asked.done(), living.placed) == (False, [])
    assert (await asked).keys == ["pace"]


async def test_a_log_is_rotated_also_while_something_is_built(tmp_path: Path) -> None:
    import asyncio

    file = tmp_path / "a.log"
    living = Living()
    living.file = living.reload.settings = replace(living.file, log_file=str(file))
    log.setup("info", str(file), "tidb")
    add_logging(living.reload)
    async with living.reload.kept_out():
        file.rename(tmp_path / "a.log.1")
        asked = asyncio.create_task(living.reload.run())
        for _ in range(5):
            await asyncio.sleep(0)
        log.get("test").info("meanwhile")
        assert not asked.done()
        assert "[meanwhile]" in file.read_text()
    await asked


async def test_each_reload_opens_the_log_anew_and_changes_its_level_file_and_form(tmp_path: Path) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    living = Living()
    living.file = living.reload.settings = replace(living.file, log_file=str(first))
    log.setup("info", str(first), "tidb")
    add_logging(living.reload)
    logger = log.get("test")
    logger.info("before")
    first.rename(tmp_path / "a.log.1")  # as logrotate does
    logger.info("still there")
    await living.reload.run()
    logger.info("after")
    assert "still there" in (tmp_path / "a.log.1").read_text()
    assert "[after]" in first.read_text()
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o600
    living.file = replace(living.file, log_file=str(second), log_level="warn", log_format="json")
    await living.reload.run()
    logger.info("too quiet")
    logger.warning("said")
    assert '"message":"said"' in second.read_text()
    assert "quiet" not in first.read_text() + second.read_text()
    assert logging.getLogger("tidb_binlog").level == logging.WARNING


@pytest.mark.parametrize(
    "wrong", [{"log_file": "/nowhere/at/all.log"}, {"log_level": "loud"}, {"log_format": "xml"}]
)
async def test_a_log_that_cannot_be_had_leaves_the_one_there_is(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    file = tmp_path / "a.log"
    living = Living()
    living.file = living.reload.settings = replace(living.file, log_file=str(file))
    log.setup("info", str(file), "tidb")
    add_logging(living.reload)
    living.file = replace(living.file, pace=7, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        await living.reload.run()
    assert living.placed == []
    log.get("test").info("goes on")
    assert "goes on" in file.read_text()


@dataclass(frozen=True, slots=True)
class Room:
    low: int = option(1, key="room.low", kind="int", help="", live=True)
    high: int = option(9, key="room.high", flag="high", kind="int", help="")
    lone: bool = option(False, key=None, flag="lone", kind="bool", help="")

    def validate(self) -> None:
        if self.low > self.high:
            raise ConfigError("room.low is above room.high", hint="")


BEFORE = Room()


def test_what_is_the_same_is_in_neither() -> None:
    found = changes(BEFORE, Room())
    assert (found.live, found.fixed) == ({}, {})
    assert following(BEFORE, Room(), found) == BEFORE


def test_live_options_are_taken_and_others_are_named_as_they_are_given() -> None:
    after = Room(low=2, high=8, lone=True)
    found = changes(BEFORE, after)
    assert (found.live, found.fixed) == ({"low": "room.low"}, {"high": "room.high", "lone": "-lone"})
    assert following(BEFORE, after, found) == replace(BEFORE, low=2), "what needs a restart stays"


def test_a_live_option_may_be_fixed_in_a_daemon_as_it_is_set_up() -> None:
    found = changes(BEFORE, Room(low=2), {"low"})
    assert (found.live, found.fixed) == ({}, {"low": "room.low"})


def test_what_is_taken_must_go_with_what_stays() -> None:
    """The file is right as a whole, and half of it would not be."""
    after = Room(low=20, high=30)
    after.validate()
    with pytest.raises(ConfigError, match="above"):
        following(BEFORE, after, changes(BEFORE, after))
