"""Every option that differs is taken or named, never both, never neither."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tidb_binlog.config.changes import changes, following
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Config:
    low: int = option(1, key="room.low", kind="int", help="", live=True)
    high: int = option(9, key="room.high", flag="high", kind="int", help="")
    lone: bool = option(False, key=None, flag="lone", kind="bool", help="")

    def validate(self) -> None:
        if self.low > self.high:
            raise ConfigError("room.low is above room.high", hint="")


BEFORE = Config()


def test_what_is_the_same_is_in_neither() -> None:
    found = changes(BEFORE, Config())
    assert (found.live, found.fixed) == ({}, {})
    assert following(BEFORE, Config(), found) == BEFORE


def test_live_options_are_taken_and_others_are_named_as_they_are_given() -> None:
    after = Config(low=2, high=8, lone=True)
    found = changes(BEFORE, after)
    assert (found.live, found.fixed) == ({"low": "room.low"}, {"high": "room.high", "lone": "-lone"})
    assert following(BEFORE, after, found) == replace(BEFORE, low=2), "what needs a restart stays"


def test_a_live_option_may_be_fixed_in_a_daemon_as_it_is_set_up() -> None:
    found = changes(BEFORE, Config(low=2), {"low"})
    assert (found.live, found.fixed) == ({}, {"low": "room.low"})


def test_what_is_taken_must_go_with_what_stays() -> None:
    """The file is right as a whole, and half of it would not be."""
    after = Config(low=20, high=30)
    after.validate()
    with pytest.raises(ConfigError, match="above"):
        following(BEFORE, after, changes(BEFORE, after))
