"""docs/object-stores.md: its file loads as the Drainer loads it, its commands are understood."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from binlogctl.cli import command_line
from binlogctl.cli.command_line import Call
from drainer.config.options import DrainerConfig
from drainer.config.sink_options import REMOTE_FILE_SIZE
from drainer.spark import program
from tests.docs.pages import Page
from tidb_binlog.config import loading

PAGE = Page("docs/object-stores.md")
COMMANDS = [line for line in PAGE.commands() if line.startswith("binlog")]


def test_its_file(tmp_path: Path) -> None:
    (text,) = PAGE.blocks("toml")
    (tmp_path / "drainer.toml").write_text(text)
    arguments = ["--config", str(tmp_path / "drainer.toml")]
    config = loading.load(DrainerConfig, arguments, {}, program="drainer", env_prefix="BINLOG_SERVER")
    assert config.archive_place.scheme == "s3"
    assert (config.segment_bytes, config.upload_interval_s) == (REMOTE_FILE_SIZE, 10.0)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(line: str) -> None:
    tool, *words = shlex.split(line)
    if tool == "binlogctl":
        assert isinstance(command_line.parse(words, {}), Call)
    else:
        assert tool == "binlog-spark"
        assert program.parser(words[0]).parse_args(words).command == words[0]
