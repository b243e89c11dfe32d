"""JSON document: the result of a comparison for programs.

In     a `Verification`
Out    what `json.dumps` takes; `version` rises when a key gets another meaning, new keys may come at any time
Holds  values are whole, as SQL literals; timestamps are numbers beside their time in UTC
"""

from __future__ import annotations

from typing import Any, Final

from drainer.compare.report.shown import name_text, whole
from drainer.compare.verify.result import ComparedColumn, RowDifference, TableResult, Values, Verification
from tidb_binlog import time_text, tso

VERSION: Final = 1


def document(found: Verification) -> dict[str, Any]:
    return {
        "version": VERSION,
        "state": found.state,
        "upstream": found.upstream,
        "downstream": found.downstream,
        "ts": found.ts,
        "time": time_text.utc(found.ts) if found.ts else None,
        "downstream_ts": found.downstream_ts or None,
        "began": _wall(found.began_s),
        "ended": _wall(found.ended_s),
        "seconds": round(max(0.0, found.ended_s - found.began_s), 3) if found.ended_s else None,
        "held_ms": round(found.held_ms, 3),
        "looked_again": found.looked_again,
        "rows": found.rows,
        "chunks": found.chunks,
        "read_whole": found.read_whole,
        "wrong": found.wrong,
        "notes": list(found.notes),
        "tables": [_table(one) for one in found.tables],
    }


def _wall(wall_s: float) -> str | None:
    return time_text.utc(tso.from_wall_s(wall_s)) if wall_s else None


def _table(table: TableResult) -> dict[str, Any]:
    return {
        "upstream": [name_text(one) for one in table.upstream],
        "downstream": name_text(table.downstream),
        "state": table.state,
        "why": table.why,
        "how": table.how,
        "chunks": table.chunks,
        "read_whole": table.read_whole,
        "rows": table.rows,
        "downstream_rows": table.downstream_rows,
        "missing": table.missing,
        "extra": table.extra,
        "changed": table.changed,
        "changed_only_computed": table.computed,
        "seconds": round(table.seconds, 3),
        "columns": [_column(one) for one in table.columns],
        "only_downstream": list(table.other_columns),
        "differences": [_difference(table, one) for one in table.differences],
    }


def _column(column: ComparedColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "how": column.how,
        "why": column.why,
        "key": column.is_key,
        "generated": column.is_generated,
    }


def _difference(table: TableResult, found: RowDifference) -> dict[str, Any]:
    names = [one.name for one in table.row_columns]
    keys = [one.name for one in table.key_columns]
    made: dict[str, Any] = {
        "kind": found.kind,
        "key": _values(keys, found.key) if found.copies is None else None,
        "columns": list(found.columns),
        "upstream": _values(names, found.upstream),
        "downstream": _values(names, found.downstream),
        "commit_ts": found.commit_ts or None,
        "committed": time_text.utc(found.commit_ts) if found.commit_ts else None,
    }
    if found.copies is not None:
        made["copies"] = {"upstream": found.copies[0], "downstream": found.copies[1]}
    return made


def _values(names: list[str], values: Values | None) -> dict[str, str] | None:
    return None if values is None else dict(zip(names, map(whole, values), strict=True))
