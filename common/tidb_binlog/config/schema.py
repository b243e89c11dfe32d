"""Configuration, schema: a JSON Schema (2020-12) of a daemon's file, made from how its options are declared.

Why    an editor completes keys, and marks what the daemon would refuse before it is started
Holds  where it and the daemon differ is listed in docs/binlogctl.md
Tests  tests/deploy/test_config_schema.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidb_binlog import quantities
from tidb_binlog.config.declaring import URI, Option, OptionKind, options, table_notes
from tidb_binlog.config.reference import in_plain_text, sentences

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_PLAIN: Final[Mapping[OptionKind, dict[str, Any]]] = {
    "str": _TEXT,
    "path": {"type": "string", "not": {"pattern": f"^{URI}"}},
    "texts": {"anyOf": [_TEXT, _TEXTS]},
    "bool": {"type": "boolean"},
    "list": _TEXTS,
    "ints": {"type": "array", "items": {"type": ["string", "integer"]}},
    "table": {"type": "object"},
    "tables": {"type": "array", "items": {"type": "object"}},
}
_NUMBERS: Final[Mapping[OptionKind, str]] = {
    "int": "integer",
    "float": "number",
    "size": "integer",
    "duration": "number",
    "retention": "integer",
}
_WRITTEN: Final[Mapping[OptionKind, str]] = {
    "size": quantities.SIZE_TEXT,
    "duration": quantities.DURATION_TEXT,
    "retention": quantities.DURATION_TEXT,
}


def schema(cls: type[Any], program: str) -> dict[str, Any]:
    """The whole document, as JSON has it."""
    notes = table_notes(cls)
    root = _table(f"The file that `{program} --config FILE` reads.")
    for entry in options(cls).values():
        if entry.key is None:
            continue
        *tables, name = entry.key.split(".")
        inside, path = root, ""
        for table in tables:
            path = f"{path}.{table}".lstrip(".")
            inside = inside["properties"].setdefault(table, _table(notes.get(path, "")))
        inside["properties"][name] = _value(entry)
    return {"$schema": DIALECT, "title": f"{program.capitalize()} of TiDB Binlog", **root}


def _table(note: str) -> dict[str, Any]:
    told = {"description": in_plain_text(note)} if note else {}
    return {**told, "type": "object", "properties": {}, "additionalProperties": False}


def _value(entry: Option) -> dict[str, Any]:
    unit = f" In {entry.unit}." if entry.unit else ""
    about: dict[str, Any] = {"description": in_plain_text(sentences(entry)) + unit}
    if entry.deprecated:
        about = {
            "description": f"{entry.help or 'Accepted for old files, without effect'}.",
            "deprecated": True,
        }
    default = {"table": {}, "tables": []}.get(entry.kind, entry.written)
    if default is not None:
        about["default"] = list(default) if isinstance(default, tuple) else default
    if entry.choices:
        return {**about, "enum": list(entry.choices)}
    if entry.suggested:
        return {**about, "anyOf": [{"enum": list(entry.suggested)}, _PLAIN[entry.kind]]}
    if entry.kind in _NUMBERS:
        return {**about, **_quantity(entry)}
    return {**about, **_PLAIN[entry.kind], **_keys(entry)}


def _quantity(entry: Option) -> dict[str, Any]:
    """A number in its range, or a text of which JSON Schema can see whether it is zero or negative."""
    limits = {"minimum": entry.least, "exclusiveMinimum": entry.above, "maximum": entry.most}
    if entry.kind == "size":
        limits["maximum"] = min(quantities.SIZE_MAX, entry.most or quantities.SIZE_MAX)
        if entry.least is None and entry.above is None:
            limits["minimum"] = 0
    if entry.kind == "duration":
        limits["maximum"] = quantities.DURATION_MAX_S
        if entry.least is None and entry.above is None:
            limits["minimum"] = -quantities.DURATION_MAX_S
    if entry.kind == "retention":
        limits = {"minimum": 1, "maximum": quantities.RETENTION_DAYS_MAX}
    number = {
        "type": _NUMBERS[entry.kind],
        **{word: limit for word, limit in limits.items() if limit is not None},
    }
    if entry.kind not in _WRITTEN:
        return number
    sign = ""
    if entry.kind == "retention" or entry.above is not None or (entry.least or 0) > 0:
        sign = r"(?!\s*-)(?=[^1-9]*[1-9])"
    elif entry.least is not None:
        sign = r"(?!\s*-[^1-9]*[1-9])"
    return {"anyOf": [number, {"type": "string", "pattern": f"^{sign}(?:{_WRITTEN[entry.kind]})$"}]}


def _keys(entry: Option) -> dict[str, Any]:
    if not entry.keys:
        return {}
    table = {
        "type": "object",
        "properties": {key: {} for key in entry.keys},
        "additionalProperties": False,
    }
    return {"items": table} if entry.kind == "tables" else {"additionalProperties": table}
