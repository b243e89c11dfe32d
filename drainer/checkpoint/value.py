"""Value of the checkpoint row: it says how far the downstream has come, in the Go drainer's format.

    {"consistent":false,"commitTS":N,"ts-map":{},"schema-version":N,"epoch":N}

In     the text of a row, of any release since the first
Holds  keys in the order in which a Go drainer writes them, ours (`epoch`, `safe-until`) after them. A Go
       drainer reads past ours and drops them when it saves: a row without `epoch` was written by another
       program. Missing keys read as zero, unknown ones (`positions` of releases before 2.1) are ignored,
       names of keys match in any case, all as in Go. Keys of `ts-map` stay, old names (`master-ts`) too
Never  guesses: a value of a wrong type is refused, because a start from a wrong position loses rows
"""

from __future__ import annotations

import json
from typing import Any, Final

from drainer.checkpoint.safe_mode import SafeMode
from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import UNREADABLE, typed
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

DEFAULT_TABLE: Final = "checkpoint"
PRIMARY_TS: Final = "primary-ts"
SECONDARY_TS: Final = "secondary-ts"
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Value of the checkpoint row. `epoch` is None when another program wrote it.

    `ts_map`: the upstream as it was at `primary-ts` equals the downstream as it was at `secondary-ts`.
    """

    commit_ts: Ts
    consistent: bool
    schema_version: int
    epoch: int | None = None
    safe_until: int = 0
    ts_map: dict[str, int] | None = None

    def to_json(self) -> str:
        """Writes the row as the Go drainer reads it."""
        document: dict[str, Any] = {
            "consistent": self.consistent,
            "commitTS": self.commit_ts,
            "ts-map": self.ts_map or {},
            "schema-version": self.schema_version,
        }
        if self.epoch is not None:
            document["epoch"] = self.epoch
        if SafeMode(self.safe_until).covers(self.commit_ts + 1):  # of what comes next
            document["safe-until"] = self.safe_until
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> Checkpoint:
        """Raises `Corruption` for what cannot be a checkpoint."""
        try:
            document = json.loads(text or "")
        except UNREADABLE as error:
            raise damaged(f"it is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise damaged("it is not a JSON object")
        values = {key.lower(): value for key, value in document.items()}
        ts_map = _value(values, "ts-map", dict)
        epoch = values.get("epoch")
        return cls(
            commit_ts=_number(values, "commitTS"),
            consistent=bool(_value(values, "consistent", bool)),
            schema_version=_number(values, "schema-version"),
            epoch=None if epoch is None else _number(values, "epoch"),
            safe_until=_number(values, "safe-until"),
            ts_map={key: _number(ts_map, key) for key in ts_map} if ts_map else None,
        )

    def mapped(self, secondary_ts: Ts) -> dict[str, int]:
        """`ts_map` with the pair for this checkpoint; what older releases left in it stays."""
        return {**(self.ts_map or {}), PRIMARY_TS: self.commit_ts, SECONDARY_TS: secondary_ts}


def _value(values: dict[str, Any], key: str, kind: type) -> Any:
    value = values.get(key.lower(), values.get(key))
    if value is not None and not isinstance(value, kind):
        raise damaged(f"{key} is not a {'JSON object' if kind is dict else 'boolean'}")
    return value


def _number(values: dict[str, Any], key: str) -> int:
    value = values.get(key.lower(), values.get(key))
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _INT64_MAX:
        raise damaged(f"{key} is not a whole number from 0 on")
    return value


def damaged(why: str) -> Corruption:
    """Makes the error for a row that cannot be read."""
    return Corruption(
        f"checkpoint row cannot be read: {why}",
        hint="read the checkpoint table and correct or delete the row",
    )


@dataclass(frozen=True, slots=True)
class Intent:
    """A DDL under way: what it is, and what the downstream looked like before it."""

    commit_ts: Ts
    job_id: int
    query: str
    before: dict[str, str | None]

    def to_json(self) -> str:
        """Writes what `from_json` reads."""
        return json.dumps(
            {"commit_ts": self.commit_ts, "job_id": self.job_id, "query": self.query, "before": self.before}
        )

    @classmethod
    def from_json(cls, text: str) -> Intent:
        """Raises `Corruption`."""
        intent: Intent = typed(text, cls, "stored intent of a DDL", hint="read the drainer_state table")
        return intent
