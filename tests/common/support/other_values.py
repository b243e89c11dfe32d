"""For each option a value that it does not have."""

from __future__ import annotations

from typing import Any

from tidb_binlog.config.declaring import options


def other_value(config: Any, name: str) -> Any:
    value, kind = getattr(config, name), options(type(config))[name].kind
    match kind:
        case "bool":
            return not value
        case "int" | "float" | "size" | "duration" | "retention":
            return value + 1
        case "list" | "ints":
            return (*value, "other")
        case "table":
            return {**value, "other": {}}
        case "tables":
            return (*value, {"other": "table"})
    return f"{value}-other"
