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

from tidb_binlog.config.declaring import Option, OptionKind, options, table_notes, variable

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
