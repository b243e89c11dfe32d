"""A traced stream: the same items, and a span for each stretch between two flushes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.sink.traced_items import TracedItems, traced
from drainer.stream.pull.merged import Merged, MergedBatch, Spilled
from drainer.txn import Item, Transaction
from tidb_binlog.config import loading
from tidb_binlog.observe import trace

ROOT = Path(__file__).resolve().parents[3]


class Items:
    def translate(self, merged: Merged) -> Item:
        return Transaction(merged.commit_ts - 1, merged.commit_ts, (), 0)

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        return iter(())


def test_a_span_between_two_flushes(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with trace.writing(str(path), "test"):
        items = TracedItems(Items())
        with traced(MergedBatch([Merged(4, b""), Merged(6, b"")], 7)):
            for commit_ts in (4, 6):
                assert items.translate(Merged(commit_ts, b"")) == Items().translate(Merged(commit_ts, b""))
            items.flushed()
            items.flushed()
            items.translate(Merged(9, b""))
            items.flushed()
        with traced(MergedBatch([], 12)):
            pass
    spans = [event for event in json.loads(path.read_text()) if event["ph"] == "X"]
    said = [(span["name"], span["args"]) for span in spans if span["name"] != "generation 0"]
    for _, what in said:
        what.pop("translating_us", None)
    assert said == [
        ("translates, dispatches", {"transactions": 2, "first_ts": 4, "last_ts": 6}),
        ("translates, dispatches", {"transactions": 1, "first_ts": 9, "last_ts": 9}),
        ("batch", {"binlogs": 2, "first_ts": 4, "last_ts": 6, "watermark": 7}),
        ("batch", {"binlogs": 0, "watermark": 12}),
    ]


def test_the_command_of_the_page() -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "trace.md").read_text(), re.M | re.S)
    program, *arguments = shlex.split(block.replace("deploy/", f"{ROOT}/deploy/"))
    assert program == ".venv/bin/drainer"
    settings = loading.load(DrainerConfig, arguments, {}, program="drainer", env_prefix=ENV_PREFIX)
    assert settings.trace == "drainer.trace"
    given = {"BINLOG_SERVER_TRACE": "x"}
    settings = loading.load(DrainerConfig, arguments[:2], given, program="drainer", env_prefix=ENV_PREFIX)
    assert settings.trace == "x"
