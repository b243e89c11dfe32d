"""Runs the merger's scripts (`tests/scenarios/merger.txt`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drainer.stream.pull.merged import Merged
from drainer.stream.pull.merger import Merger
from tidb_binlog.errors import Corruption

SCRIPT = Path(__file__).parents[3] / "scenarios" / "merger.txt"


def scenarios() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in SCRIPT.read_text().splitlines():
        if line.startswith("== "):
            name = line[3:]
            found[name] = []
        elif line.strip() and not line.startswith("#"):
            found[name].append(line)
    return found


def stamps(text: str) -> tuple[list[int], int]:
    """`3 5 | 9` as ([3, 5], 9)."""
    entries, _, watermark = text.partition("|")
    return [int(word) for word in entries.split()], int(watermark or 0)


class Runner:
    def __init__(self) -> None:
        self.merger = Merger(0)
        self.refused = ""

    def line(self, line: str) -> None:
        if line.startswith("refused "):
            self.refused = line.removeprefix("refused ")
            return
        if self.refused:
            with pytest.raises(Corruption, match=re.escape(self.refused)):
                self.run(line)
            self.refused = ""
        else:
            self.run(line)
            self.merger.check()

    def run(self, line: str) -> None:
        words = line.split()
        if words[0] == "join":
            self.merger.add_source(words[1], int(words[3]))
        elif words[0] == "out":
            popped = self.merger.pop(1 << 30)
            assert ([entry.commit_ts for entry in popped.entries], popped.watermark) == stamps(line[3:])
        elif words[0] == "asks":
            expected = {} if words[1] == "nobody" else dict(word.split(":") for word in words[1:])
            assert self.merger.awaits() == {name: int(ts) for name, ts in expected.items()}
        elif words[1] == "sends":
            found, watermark = stamps(line.split("sends", 1)[1])
            self.merger.push(words[0], [Merged(ts, b"%d" % ts) for ts in found], watermark)
        else:
            assert words[1] == "offline"
            self.merger.end(words[0])


@pytest.mark.parametrize("name", scenarios())
def test_scenario(name: str) -> None:
    runner = Runner()
    for line in scenarios()[name]:
        runner.line(line)
    assert not runner.refused


def test_scripts_are_there() -> None:
    assert len(scenarios()) >= 12
