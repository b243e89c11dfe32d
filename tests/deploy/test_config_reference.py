"""The reference and the files that users copy are what the declarations of the options make of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from binlogctl.cli import command_line
from binlogctl.program import handler
from tests.deploy.daemons import DAEMONS, told
from tidb_binlog.config import declaring, loading, reference
from tools import config_reference

LINE_OF_HELP_MAX = 100
each = pytest.mark.parametrize("program", DAEMONS)


@pytest.mark.parametrize(("command", "name"), [("new", "deploy/{}.toml"), ("docs", "docs/config-{}.md")])
@each
async def test_who_has_no_tree_is_given_them_by_binlogctl(
    program: str, command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = command_line.parse(["config", command, program], {})
    assert isinstance(call, command_line.Call)
    assert await handler(call)(call) == 0
    assert capsys.readouterr().out == (config_reference.ROOT / name.format(program)).read_text()


@each
def test_the_short_file_is_short_and_says_the_defaults(program: str) -> None:
    cls, prefix = DAEMONS[program]
    file = config_reference.ROOT / "deploy" / f"{program}.toml"
    text = file.read_text()
    assert loading.load(cls, [f"-config={file}"], {}, program=program, env_prefix=prefix) == cls()
    assert len(re.findall(r"^\w.* = ", text, re.M)) == sum(one.starter for one in told(program).values())
    assert len(text.splitlines()) <= 120
    assert "[door]" not in text


@each
def test_every_default_is_written_as_a_file_may_have_it(program: str) -> None:
    defaults = declaring.defaults(DAEMONS[program][0])
    for name, entry in told(program).items():
        if defaults[name] is None:  # not given at all is a value of its own
            continue
        value = tomllib.loads(f"key = {reference.default(entry)}")["key"]
        assert declaring.convert(entry.kind, value) == defaults[name], name


@each
def test_every_option_is_explained_in_one_line_of_help(program: str) -> None:
    cls, prefix = DAEMONS[program]
    shown = loading.usage(cls, program, prefix)
    assert f"`binlogctl config docs {program}` tells every key of the file." in shown
    for name, entry in told(program).items():
        assert 0 < len(entry.help) <= LINE_OF_HELP_MAX, name
        assert not entry.help.endswith("."), name
        assert entry.help[:4] != "and ", f"{name}: it is read without the line before it"
        assert not entry.more or entry.more.endswith((".", "...", ":")), name
        unit = f", in {entry.unit}" if entry.unit else ""
        assert entry.flag is None or f"        {entry.help}{unit}" in shown, name


@each
def test_every_key_is_in_the_reference(program: str) -> None:
    page = (config_reference.ROOT / "docs" / f"config-{program}.md").read_text()
    for entry in declaring.options(DAEMONS[program][0]).values():
        name = str(entry.key or entry.flag)
        last = re.escape(name.rpartition(".")[2])
        assert re.search(rf"^### (-|[\w.-]+\.)?{last}$|`(-|[\w.-]+\.)?{last}`", page, re.M), name


@each
def test_every_example_is_of_its_key_and_of_no_unknown_table(program: str) -> None:
    def inside(document: dict[str, Any], dotted: str) -> Any:
        for part in dotted.split("."):
            document = document[part]
        return document

    examples = [entry for entry in told(program).values() if entry.example]
    for entry in examples:
        value = inside(tomllib.loads(entry.example), str(entry.key))
        assert declaring.convert(entry.kind, value), entry.key
    tables = [entry for entry in told(program).values() if entry.kind in ("table", "tables")]
    assert {entry.key for entry in tables} == {entry.key for entry in examples if entry in tables}


@each
def test_pages_that_it_points_to_are_there(program: str) -> None:
    docs = Path(config_reference.ROOT / "docs")
    for page in re.findall(r"\]\(([\w.-]+\.md)", (docs / f"config-{program}.md").read_text()):
        assert (docs / page).exists(), page
