"""The JSON Schemas of the daemons' files say what the daemons say, as far as a schema can.

Each key is tried with values of all types, around its limits and beyond, and both are asked.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from binlogctl.cli import command_line
from binlogctl.commands.config import examine
from binlogctl.program import handler
from drainer.config import lake_options, sink_options
from tests.architecture.source import ROOT
from tests.cases import case
from tests.deploy.daemons import DAEMONS, told
from tidb_binlog.config import declaring, reference
from tidb_binlog.config.declaring import Option

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

each = pytest.mark.parametrize("program", DAEMONS)
TEXTS = ("", "x", "0", "7", "-7", "0s", "-1s", "1h", "1m30s", "1.5h", ".5s", "1h x", " 2s ", "s3://b/p", "/p")
SIZES = ("0 MB", "0.0 KiB", "10GiB", "1,024", "4 kb", "1.5 Mi", "3 X", "1.2.3", "-1 MB", "1e")
LISTS = ([], ["a"], [1], ["a", 1], [[]], {}, {"a": 1}, {"a": {}}, {"a": {"nope": 1}}, [{}], [{"nope": 1}])
OF_THE_SINK = {
    "KafkaOptions": {"db-type": "kafka", "to": {"kafka-addrs": "h:9092"}},
    "HttpOptions": {"db-type": "http", "to": {"url": "http://h"}},
    "LakeOptions": {"db-type": "delta", "to": {"warehouse": "/lake"}},
    "ArchiveOptions": {"db-type": "file"},
}
"""What makes a drainer look at the keys of a class."""
SAID_OF_A_VALUE = re.compile(r" line \d+: |it must be|has an unknown key|unknown key '|unknown configuration")
"""How the daemons refuse what a schema can say; anything else is said of several keys together."""


@cache
def validator(program: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # of grammars, for which each process would take seconds

    return Draft202012Validator(reference.schema(DAEMONS[program][0], program))


def options(program: str) -> list[tuple[str, Option]]:
    entries = declaring.options(DAEMONS[program][0]).values()
    return [(entry.key, entry) for entry in entries if entry.key is not None]


def document(program: str, key: str, value: Any) -> dict[str, Any]:
    cls = DAEMONS[program][0]
    name = next(name for name, entry in declaring.options(cls).items() if entry.key == key)
    owner = next(base.__name__ for base in cls.__mro__ if name in vars(base).get("__annotations__", {}))
    base = OF_THE_SINK.get(owner)
    made: dict[str, Any] = {"syncer": json.loads(json.dumps(base))} if base else {}
    inside = made
    *tables, last = key.split(".")
    for table in tables:
        inside = inside.setdefault(table, {})
    inside[last] = value
    return made


def written(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {written(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return reference.toml(value)


def refusals(program: str, made: dict[str, Any], file: Path) -> list[str]:
    """What the daemon says of a file; nothing where it takes it."""
    file.write_text("".join(f"{key} = {written(value)}\n" for key, value in made.items()))
    return [str(problem) for problem in examine(str(file), program, {}).problems]


def values(entry: Option) -> Iterator[Any]:
    yield from (True, False, 0, 1, -1, -2, 3, 10**7, 1 << 40, 0.5, -0.5, *TEXTS, *SIZES, *LISTS)
    yield from (*entry.choices, *entry.suggested)
    for limit in (entry.least, entry.above, entry.most):
        if limit is not None:
            yield from (int(limit) - 1, int(limit), int(limit) + 1)
    for key in entry.keys:
        yield from ([{key: "a"}], {"name": {key: ["a"]}})
    yield list(entry.written) if isinstance(entry.written, tuple) else entry.written


def is_a_text_that_is_not_measured(entry: Option, value: Any) -> bool:
    """Of such a quantity the schema sees zero and a sign alone."""
    limits = [limit for limit in (entry.least, entry.above, entry.most) if limit is not None]
    return isinstance(value, str) and entry.kind in ("size", "duration") and any(limits)


@each
async def test_the_command_prints_a_valid_schema(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    call = command_line.parse(["config", "schema", program], {})
    assert isinstance(call, command_line.Call)
    assert await handler(call)(call) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    validator(program).check_schema(printed)
    assert printed == validator(program).schema


@each
def test_both_say_the_same_of_each_value(program: str, tmp_path: Path) -> None:
    refused, taken, unmeasured = 0, 0, 0
    shared = dict(options("pump"))
    for key, entry in options(program):
        if program == "drainer" and shared.get(key) is entry:
            continue
        for value in filter(lambda value: value is not None, values(entry)):
            made = document(program, key, value)
            said = refusals(program, made, tmp_path / "node.toml")
            wrong = [error.message for error in validator(program).iter_errors(made)]
            with case(f"{key} = {value!r}"):
                if wrong:
                    assert said, wrong
                    refused += 1
                elif any(map(SAID_OF_A_VALUE.search, said)):
                    assert is_a_text_that_is_not_measured(entry, value), said
                    unmeasured += 1
                taken += not said
    assert refused > 1000
    assert taken > 500
    assert bool(unmeasured) == (program == "pump")


@each
def test_each_key_has_a_default_and_what_is_told_of_it(program: str) -> None:
    for key, entry in options(program):
        found: Any = validator(program).schema
        for part in key.split("."):
            found = found["properties"][part]
        with case(key):
            if entry.written is not None or entry.kind in ("table", "tables"):
                validator(program).evolve(schema=found).validate(found["default"])
            assert found.get("deprecated", False) == entry.deprecated
            assert (
                entry.deprecated
                or reference.in_plain_text(reference.sentences(entry)) in found["description"]
            )
            assert "](" not in found["description"]


@each
def test_no_table_takes_an_unknown_key(program: str, tmp_path: Path) -> None:
    tables = {"", *(key.rpartition(".")[0] for key, _ in options(program))}
    for table in tables:
        made: dict[str, Any] = {}
        inside = made
        for part in filter(None, table.split(".")):
            inside = inside.setdefault(part, {})
        inside["nope"] = 1
        with case(table):
            assert "nope" in "".join(refusals(program, made, tmp_path / "node.toml"))
            assert not validator(program).is_valid(made)


def test_keys_in_other_letters_are_the_daemon_s_alone(tmp_path: Path) -> None:
    made = {"Data-Dir": "/data"}
    assert refusals("pump", made, tmp_path / "pump.toml") == []
    assert not validator("pump").is_valid(made)


@each
def test_files_that_are_shipped_and_shown_are_right(program: str, tmp_path: Path) -> None:
    """The short file, the example of each option, and what pages show, where the daemon says whose it is."""
    shown = [entry.example for entry in told(program).values() if entry.example]
    texts = [(ROOT / "deploy" / f"{program}.toml").read_text(), *shown]
    for text in texts:
        validator(program).validate(tomllib.loads(text))
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    seen = 0
    for text in re.findall(r"^```toml\n(.*?)^```$", pages, re.M | re.S):
        with case(text):
            made = tomllib.loads(text)
            (tmp_path / "node.toml").write_text(text)
            problems = [str(one) for one in examine(str(tmp_path / "node.toml"), program, {}).problems]
            if not any(map(SAID_OF_A_VALUE.search, problems)):
                validator(program).validate(made)
                seen += 1
    assert seen > 3


def test_the_sinks_whose_keys_are_tried_are_those_that_there_are() -> None:
    kinds = {sink_options.KafkaOptions, sink_options.HttpOptions, sink_options.ArchiveOptions}
    assert {cls.__name__ for cls in (*kinds, lake_options.LakeOptions)} == set(OF_THE_SINK)


def test_the_page_names_the_line_that_editors_read() -> None:
    page = (ROOT / "docs" / "binlogctl.md").read_text()
    (command,) = re.findall(r"^binlogctl (config schema .*) > drainer.schema.json$", page, re.M)
    assert isinstance(command_line.parse(command.split(), {}), command_line.Call)
    assert "#:schema ./drainer.schema.json\n" in page
