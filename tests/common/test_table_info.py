"""Table definitions keep everything on their way through JSON, and broken ones are refused by name."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from common.errors import Corruption
from common.table_info import TableInfo

CORPUS = Path(__file__).resolve().parents[1] / "golden" / "corpus"


@pytest.mark.parametrize("scenario", ["types", "keys", "ddl"])
def test_a_definition_survives_the_way_out_and_back(scenario: str) -> None:
    count = 0
    with gzip.open(CORPUS / scenario / "ddl_jobs.jsonl.gz") as lines:
        for line in lines:
            document = json.loads(base64.b64decode(json.loads(line)["raw"]))["binlog"]["TableInfo"]
            if not document or document.get("view") or document.get("sequence") or document.get("fk_info"):
                continue
            info = TableInfo.from_json(document)
            assert TableInfo.from_json(json.loads(json.dumps(info.to_json()))) == info
            count += 1
    assert count > 10


def test_a_broken_definition_is_named() -> None:
    with pytest.raises(Corruption, match="broken"):
        TableInfo.from_json({"id": 1, "name": {"O": "broken", "L": "broken"}, "cols": [{"id": 1}]})


def test_a_handle_without_a_primary_key_is_named() -> None:
    info = TableInfo(7, "odd", (), pk_is_handle=True)
    with pytest.raises(Corruption, match="odd"):
        _ = info.handle_column
