"""Every command and snippet of the page about archives runs as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "archives.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page's first commands make."""
    directory = tmp_path_factory.mktemp("build")
    for line in blocks("sh")[0].splitlines():
        run(line, directory)
    return directory


def run(line: str, build: Path) -> str:
    line = line.replace(" build", f" {build}").replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    done = subprocess.run(shlex.split(line), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


PRINTED = {
    "row.key_values": r"\d+ shop\.customer insert \(1,\) \('id', 'name', 'credit'\)",
    "archive.kind": r"pump \d\d+",
    "to_pandas": r"(insert|update|delete) +\S+ +\S+",
    "to_polars": r"insert +┆ \d+",
    "archive.sql": r"insert.*\d+",
    "duckdb": r"max",
    "batch_rows": r"\d+ \['_commit_ts', 'after'\]",
    "damage": r"binlog-0000000000000000-\d+ \d+ \d+ \d+ \d+ None",
}


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_a_snippet(number: int, build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snippet = blocks("python")[number]
    assert len(PRINTED) == len(blocks("python"))
    (expected,) = {text for word, text in list(PRINTED.items())[number : number + 1] if word in snippet}
    program = snippet.replace('"build', f'"{build}').replace('"tests/', f'"{ROOT}/tests/')
    exec(program, {"__name__": "page"})
    assert re.search(expected, capsys.readouterr().out)


@pytest.mark.parametrize("line", [line for block in blocks("sh")[1:] for line in block.splitlines()])
def test_a_command(line: str, build: Path) -> None:
    assert len(run(line, build).splitlines()) > 3
