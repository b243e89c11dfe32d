"""The page and the short file say what the declarations say, in the form that users read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from typing import Any, ClassVar

import pytest

from tidb_binlog.config import declaring, reference
from tidb_binlog.config.declaring import option


@dataclass(frozen=True, slots=True)
class Node:
    table_notes: ClassVar[Mapping[str, str]] = {"store": "Where things are."}

    addr: str = option("h:1", key="addr", flag="addr", help="host:port to listen on", starter=True)
    room: int = option("1 GiB", key="store.room", kind="size", help="space | in all", live=True)
    pause: int = option(5, key="store.pause", kind="int", unit="minutes", help="time between two looks")


@dataclass(frozen=True, slots=True)
class Example(Node):
    table_notes: ClassVar[Mapping[str, str]] = {"rules": "Of tables."}

    rule: tuple[dict[str, Any], ...] = option(
        (),
        key="rules.rule",
        kind="tables",
        help="what is left out, as <a> or x*, not `<a>`",
        more="See [rules](rules.md), docs/no-rules.md.",
        example='[[rules.rule]]\nname = "x"',
        starter=True,
    )
    once: bool = option(False, key=None, flag="once", kind="bool", help="do it and end")
    old: str = option("", key=None, flag="old", help="nothing asks for it", deprecated=True)


def test_the_page() -> None:
    told = reference.page(Example, "pump", "PUMP")
    assert told.startswith("# Pump configuration\n")
    _, _, body = told.partition("## Top level\n")
    assert (
        body
        == """
| Key | Default | Type | Meaning |
| --- | --- | --- | --- |
| `addr` | `"h:1"` | text | host:port to listen on. · flag `-addr` · environment `PUMP_ADDR` |

## [rules]

Of tables.

### rules.rule

What is left out, as &lt;a> or x\\*, not `<a>`. See [rules](rules.md), [no rules](no-rules.md).

Default `[]` · list of tables

```toml
[[rules.rule]]
name = "x"
```

## [store]

Where things are.

| Key | Default | Type | Meaning |
| --- | --- | --- | --- |
| `pause` | `5` | whole number (minutes) | Time between two looks. |
| `room` | `"1 GiB"` | size | Space \\| in all. · **reload** |

## Flags without a key

### -once

Do it and end.

Default `false` · true or false · flag `-once` · environment `PUMP_ONCE`

## Accepted for old files

What a Go deployment may have set. It is read, and has no effect but what is said here.

- `-old`: nothing asks for it
"""
    )


def test_the_short_file() -> None:
    assert (
        reference.starter(Example, "pump", "PUMP")
        == """\
# Pump: what one should decide, with the defaults. Other keys are explained in
# docs/config-pump.md. Flags and PUMP_... variables win over this file.

# host:port to listen on.
addr = "h:1"

[rules]

# What is left out, as <a> or x*, not `<a>`. See docs/rules.md, docs/no-rules.md.
rule = []
"""
    )


def test_values_as_a_file_has_them() -> None:
    values = (True, ("a", 'b"c'), 1.0, 0.5, -1, ())
    assert [reference.toml(one) for one in values] == ["true", '["a", "b\\"c"]', "1", "0.5", "-1", "[]"]


@pytest.mark.parametrize(
    ("help", "told"),
    [
        ("name of it", "Name of it."),
        ("two-way replication", "Two-way replication."),
        ("upstream's host", "Upstream's host."),
        ("archive: its directory", "Archive: its directory."),
        ("host:port to listen on", "host:port to listen on."),
        ("sql_mode of it", "sql_mode of it."),
        ("URL of it", "URL of it."),
    ],
)
def test_a_sentence_begins_with_a_capital_where_it_begins_with_a_word(help: str, told: str) -> None:
    (entry,) = declaring.options(
        make_dataclass("One", [("one", str, option("", key="one", help=help))], frozen=True)
    ).values()
    assert reference.sentences(entry) == told
