"""Configuration, reference: what users read of a daemon's options, made from their declarations.

Out    the page that explains every key, and the short file that users copy
Why    an option is explained where it is declared and nowhere else: `-h`, the page and the file cannot differ
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidb_binlog import quantities
from tidb_binlog.config.declaring import URI, Option, OptionKind, options, table_notes, variable

_COLUMNS: Final = 100
_KINDS: Final[Mapping[OptionKind, str]] = {
    "str": "text",
    "path": "path",
    "texts": "text, or list of texts",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "size": "size",
    "duration": "duration",
    "retention": "days or duration",
    "list": "list of texts",
    "ints": "list of whole numbers",
    "table": "table",
    "tables": "list of tables",
}
_LINK: Final = re.compile(r"\[[^\]]+\]\(([\w.-]+\.md)\)")
_WORD: Final = re.compile(r"[a-z]+(?:[-'][a-z]+)*[:,]?(?: |\Z)")
_PAGE: Final = re.compile(r"\bdocs/(([\w-]+)\.md)\b")


def default(entry: Option) -> str:
    """The default as a file has it."""
    if entry.kind == "table":
        return "{}"
    return toml(entry.written)


def toml(value: Any) -> str:
    """One value of a file. A float that is whole is written as the whole number that it may also be."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)


def sentences(entry: Option) -> str:
    """All that is said of an option."""
    # `host:port`, `sql_mode` and the like are no words, and stay as they are
    is_word = _WORD.match(entry.help) is not None
    first = entry.help[:1].upper() + entry.help[1:] if is_word else entry.help
    return f"{first}. {entry.more}".rstrip()


def in_plain_text(text: str) -> str:
    """With the paths of pages in place of links."""
    return _LINK.sub(r"docs/\1", text)


# The page -----------------------------------------------------------------------------------------------


def page(cls: type[Any], program: str, env_prefix: str) -> str:
    """Markdown. Keys stand in the order of the alphabet, below the table of the file that they are in."""
    entries = [entry for entry in options(cls).values() if not entry.deprecated]
    former = [entry for entry in options(cls).values() if entry.deprecated]
    lines = [*_head(program, env_prefix), *_tables_of_file(cls, entries, env_prefix)]
    flags = sorted((entry for entry in entries if entry.key is None), key=lambda entry: str(entry.flag))
    if flags:
        lines += ["## Flags without a key", ""]
        for entry in flags:
            lines += _own_section(entry, env_prefix)
    lines += _accepted(former)
    return "\n".join(lines).rstrip() + "\n"


def _head(program: str, env_prefix: str) -> list[str]:
    title = program.capitalize()
    return [
        f"# {title} configuration",
        "",
        f"Every key of the file that `{program} --config FILE` reads, with its default. No key has to be",
        f"set: start from `binlogctl config new {program}`, which has what one should decide, and add keys",
        "from here.",
        "",
        f"- A flag wins over an environment variable (`{env_prefix}_...`), and that wins over the file.",
        "- `binlogctl config check FILE` names every wrong key with its line.",
        "- `binlogctl config show FILE` shows what is in force, and where it comes from.",
        f"- A key with **reload** changes in the running {program} at SIGHUP; all others take a restart.",
        '- A size is a number of bytes or a text such as `"10 GiB"`, a duration a number of seconds or a',
        '  text such as `"1m30s"`.',
        "",
        "This page is made from the declarations of the options by `python -m tools.config_reference`.",
        "",
    ]


def _tables_of_file(cls: type[Any], listed: list[Option], env_prefix: str) -> Iterator[str]:
    notes = table_notes(cls)
    for table, entries in _by_table(listed).items():
        yield from (f"## [{table}]" if table else "## Top level", "")
        if table in notes:
            yield from (_in_markdown(notes[table]), "")
        if any(entry.more or entry.example for entry in entries):
            for entry in entries:
                yield from _own_section(entry, env_prefix)
        else:
            yield from _table(entries, env_prefix)


def _by_table(entries: list[Option]) -> dict[str, list[Option]]:
    """The table without a name first."""
    keys = {entry.key: entry for entry in entries if entry.key is not None}
    by_table: dict[str, list[Option]] = {}
    for key in sorted(keys, key=lambda key: (key.rpartition(".")[0], key.lower())):
        by_table.setdefault(key.rpartition(".")[0], []).append(keys[key])
    return by_table


def _own_section(entry: Option, env_prefix: str) -> Iterator[str]:
    yield from (f"### {entry.key or f'-{entry.flag}'}", "")
    yield from (_in_markdown(sentences(entry)), "")
    ways = _other_ways(entry, env_prefix)
    yield from (" · ".join([f"Default `{default(entry)}`", _type(entry), *ways, *_reload(entry)]), "")
    if entry.example:
        yield from ("```toml", *entry.example.splitlines(), "```", "")


def _table(entries: list[Option], env_prefix: str) -> Iterator[str]:
    yield "| Key | Default | Type | Meaning |"
    yield "| --- | --- | --- | --- |"
    for entry in entries:
        told = " · ".join([_in_markdown(sentences(entry)), *_other_ways(entry, env_prefix), *_reload(entry)])
        cell = told.replace("|", "\\|")
        name = str(entry.key).rpartition(".")[2]
        yield f"| `{name}` | `{default(entry)}` | {_type(entry)} | {cell} |"
    yield ""


def _in_markdown(text: str) -> str:
    """Pages as links, and nothing that would be taken for markup but code."""
    linked = _PAGE.sub(lambda match: f"[{match[2].replace('-', ' ')}]({match[1]})", text)
    parts = linked.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)


def _type(entry: Option) -> str:
    return f"{_KINDS[entry.kind]} ({entry.unit})" if entry.unit else _KINDS[entry.kind]


def _other_ways(entry: Option, env_prefix: str) -> list[str]:
    if entry.flag is None:
        return []
    return [f"flag `-{entry.flag}`", f"environment `{variable(env_prefix, entry.flag)}`"]


def _reload(entry: Option) -> list[str]:
    return ["**reload**"] if entry.live else []


def _accepted(former: list[Option]) -> Iterator[str]:
    if not former:
        return
    yield from ("## Accepted for old files", "")
    yield from ("What a Go deployment may have set. It is read, and has no effect but what is said here.", "")
    for entry in sorted(former, key=lambda entry: str(entry.key or entry.flag).lower()):
        name = f"`{entry.key}`" if entry.key else f"`-{entry.flag}`"
        yield f"- {name}: {entry.help}" if entry.help else f"- {name}"


# The short file -----------------------------------------------------------------------------------------


def starter(cls: type[Any], program: str, env_prefix: str) -> str:
    """TOML with the options that are declared as `starter`, each at its default."""
    starters = [entry for entry in options(cls).values() if entry.starter]
    lines = [
        f"# {program.capitalize()}: what one should decide, with the defaults. Other keys are explained in",
        f"# docs/config-{program}.md. Flags and {env_prefix}_... variables win over this file.",
    ]
    for table, entries in _by_table(starters).items():
        if table:
            lines += ["", f"[{table}]"]
        for entry in entries:
            name = str(entry.key).rpartition(".")[2]
            told = in_plain_text(sentences(entry))
            lines += [
                "",
                *textwrap.wrap(
                    told, _COLUMNS, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
                ),
            ]
            lines.append(f"{name} = {default(entry)}")
    return "\n".join(lines) + "\n"


# Configuration, schema: a JSON Schema (2020-12) of a daemon's file, made from how its options are declared.
# Why    an editor completes keys, and marks what the daemon would refuse before it is started
# Holds  where it and the daemon differ is listed in docs/binlogctl.md

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
    root = _table_schema(f"The file that `{program} --config FILE` reads.")
    for entry in options(cls).values():
        if entry.key is None:
            continue
        *tables, name = entry.key.split(".")
        inside, path = root, ""
        for table in tables:
            path = f"{path}.{table}".lstrip(".")
            inside = inside["properties"].setdefault(table, _table_schema(notes.get(path, "")))
        inside["properties"][name] = _value(entry)
    return {"$schema": DIALECT, "title": f"{program.capitalize()} of TiDB Binlog", **root}


def _table_schema(note: str) -> dict[str, Any]:
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
