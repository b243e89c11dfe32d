"""The page about lakes: its file is one, its tables say what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pyarrow as pa

from drainer.config.lake_options import LAKES
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.config.sink_options import SINKS
from drainer.lake import changelog
from tests.architecture.source import ROOT
from tests.docs.pages import Page
from tidb_binlog.config import loading

PAGE = Page("docs/lake.md")


def test_files_of_the_page_are_taken(tmp_path: Path) -> None:
    files = [text for text in PAGE.blocks("toml") if "db-type" in text]
    assert files
    for text in files:
        file = tmp_path / "drainer.toml"
        file.write_text(text)
        settings = loading.load(
            DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX
        )
        assert settings.db_type in LAKES


def test_packages_of_the_page_are_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    told = {extra for line in PAGE.commands() for extra in re.findall(r"tidb-binlog\[(\w+)\]", line)}
    assert told == set(LAKES) & set(SINKS) <= set(extras)


def test_the_columns_are_those_of_a_changelog() -> None:
    told = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.text, re.M)
    names = {pa.int64(): "long", pa.int32(): "int", pa.string(): "string", pa.struct([]): "struct"}
    assert told == [(field.name, names[field.type]) for field in changelog.schema_of({})]
