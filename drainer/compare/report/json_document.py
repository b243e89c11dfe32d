"""JSON document: the result of a comparison for programs.

Out    what `json.dumps` takes; `version` rises when a key gets another meaning, new keys may come at any time
Holds  values are whole, as SQL literals; timestamps are numbers beside their time in UTC
"""

from __future__ import annotations

from typing import Any, Final

from drainer.compare.report.shown import name_text, whole
from drainer.compare.verify.result import ComparedColumn, RowDifference, TableResult, Values, Verification
from tidb_binlog import time_text, tso

VERSION: Final = 1


def document(result: Verification) -> dict[str, Any]:
    return {
        "version": VERSION,
        "state": result.state,
        "upstream": result.upstream,
        "downstream": result.downstream,
        "ts": result.ts,
        "time": time_text.utc(result.ts) if result.ts else None,
        "downstream_ts": result.downstream_ts or None,
        "began": _wall(result.began_s),
        "ended": _wall(result.ended_s),
        "seconds": round(max(0.0, result.ended_s - result.began_s), 3) if result.ended_s else None,
        "held_ms": round(result.held_ms, 3),
        "looked_again": result.looked_again,
        "rows": result.rows,
        "chunks": result.chunks,
        "read_whole": result.read_whole,
        "wrong": result.wrong,
        "notes": list(result.notes),
        "tables": [_table(table) for table in result.tables],
    }


def _wall(wall_s: float) -> str | None:
    return time_text.utc(tso.from_wall_s(wall_s)) if wall_s else None


def _table(table: TableResult) -> dict[str, Any]:
    return {
        "upstream": [name_text(name) for name in table.upstream],
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
        "columns": [_column(column) for column in table.columns],
        "only_downstream": list(table.other_columns),
        "differences": [_difference(table, difference) for difference in table.differences],
    }


def _column(column: ComparedColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "how": column.how,
        "why": column.why,
        "key": column.is_key,
        "generated": column.is_generated,
    }


def _difference(table: TableResult, difference: RowDifference) -> dict[str, Any]:
    names = [column.name for column in table.row_columns]
    keys = [column.name for column in table.key_columns]
    document: dict[str, Any] = {
        "kind": difference.kind,
        "key": _values(keys, difference.key) if difference.copies is None else None,
        "columns": list(difference.columns),
        "upstream": _values(names, difference.upstream),
        "downstream": _values(names, difference.downstream),
        "commit_ts": difference.commit_ts or None,
        "committed": time_text.utc(difference.commit_ts) if difference.commit_ts else None,
    }
    if difference.copies is not None:
        document["copies"] = {"upstream": difference.copies[0], "downstream": difference.copies[1]}
    return document


def _values(names: list[str], values: Values | None) -> dict[str, str] | None:
    return None if values is None else dict(zip(names, map(whole, values), strict=True))
