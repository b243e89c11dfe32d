"""The page of messages is true: its examples are what is written for the row that they show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drainer.formats.messages.message import FORMATS, FormatOptions, Message, open_format
from drainer.txn import UPDATE
from tests.common.rowcodec.tables import key, kind, table
from tests.drainer.formats.messages.changes import Subjects, transaction, version
from tidb_binlog.version import release

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "messages.md").read_text()
EXAMPLES = dict(
    zip(
        ("canal-json", "debezium-json"),
        map(json.loads, re.findall(r"^```json\n(.*?)^```$", PAGE, re.M | re.S)),
        strict=True,
    )
)
ORDERS = version(
    table(
        ("id", key("bigint")),
        ("item", kind("varchar", flen=40)),
        ("price", kind("decimal", flen=10, decimal=2)),
    )
)
CHANGE = (UPDATE, ([7, "pen", "1.50"], [7, "pen", "1.75"]))


def written(name: str) -> Message:
    made = open_format(name, FormatOptions(registry=Subjects()))
    (message,) = made.rows(transaction(ORDERS, CHANGE, first=2))
    return message


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_examples_are_what_is_written(name: str) -> None:
    value = written(name).value
    assert value is not None
    found: Any = json.loads(value)
    assert json.dumps(found).replace(json.dumps(release()), '"RELEASE"') == json.dumps(EXAMPLES[name])


def test_the_key_that_it_shows() -> None:
    shown = re.findall(r"Its key is a JSON object of the key's columns: `(.*)`", PAGE)
    assert [written("canal-json").key] == [text.encode() for text in shown]


def test_it_names_every_format_and_what_each_has() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| (yes|no) \| (yes|no) \|", PAGE, re.M)
    assert [name for name, _, _ in rows] == list(FORMATS)
    for name, _, watermarks in rows:
        made = open_format(name, FormatOptions(registry=Subjects()))
        assert (made.watermark(1 << 20) is not None) == (watermarks == "yes")
