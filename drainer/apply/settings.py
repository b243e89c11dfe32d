"""Applier settings: how rows are applied, as one value, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from drainer.apply.lane import LaneSettings
from drainer.pull.merged import Merged, Spilled
from drainer.sink.mysql.column_match import FULL
from drainer.txn import Item, Transaction


@dataclass(frozen=True, slots=True)
class ApplierSettings:
    """`sync_mode` as in `column_match`. `lanes_max`: so many lanes at most are tried; 0: their number stays.
    `whole_transactions`: one lane, and no transaction is ever cut.

    `maps_positions` as `maps` of the keeper. `keep_schema` is called with the commit_ts of every DDL, before
    its checkpoint is stored.
    """

    lane: LaneSettings
    checkpoint_interval_s: float = 0.5
    safe_mode: bool = False
    sync_mode: int = FULL
    lanes_max: int = 0
    whole_transactions: bool = False
    maps_positions: bool = False
    keep_schema: Callable[[int], None] = lambda _commit_ts: None


class ItemSource(Protocol):
    """The translator, as the applier sees it."""

    def translate(self, merged: Merged) -> Item: ...

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]: ...
