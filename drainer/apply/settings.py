"""Settings: how the MySQL sink applies rows, as one value.

Tests  tests/drainer/apply/test_mysql_sink_modes.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drainer.apply.lane import LaneSettings
from drainer.sink.mysql.column_match import FULL


@dataclass(frozen=True, slots=True)
class ApplierSettings:
    """`sync_mode` as in `column_match`. `lanes_max`: so many lanes at most are tried; 0: their number stays.
    `whole_transactions`: one lane, and no transaction is ever cut.

    `maps_positions` as `maps` of the keeper. `keep_schema` is called with the commit_ts of every DDL, before
    its checkpoint is stored.
    """

    lane: LaneSettings
    safe_mode: bool = False
    sync_mode: int = FULL
    lanes_max: int = 0
    whole_transactions: bool = False
    maps_positions: bool = False
    keep_schema: Callable[[int], None] = lambda _commit_ts: None
