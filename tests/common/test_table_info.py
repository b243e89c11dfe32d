"""Table definitions keep everything on their way through JSON, and broken ones are refused by name."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidb_binlog import table_info as ti
from tidb_binlog.errors import Corruption
from tidb_binlog.table_info import ColumnKind, FieldType, TableInfo

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


def _kind(tp: int, **more: Any) -> ColumnKind:
    return FieldType(tp, **more).kind


def test_every_type_has_its_kind() -> None:
    kinds = {tp: _kind(tp) for tp in range(256)}
    assert {tp for tp, kind in kinds.items() if kind is ColumnKind.SIGNED} == ti.INTEGER_TYPES - {ti.YEAR}
    assert {tp for tp, kind in kinds.items() if kind is ColumnKind.TEXT} == ti.STRING_TYPES
    assert {tp for tp, kind in kinds.items() if kind in ti.DATE_AND_TIME_KINDS} == ti.TIME_TYPES
    assert set(kinds.values()) | {ColumnKind.UNSIGNED, ColumnKind.BINARY} == set(ColumnKind)
    assert kinds[ti.NEWDATE] is kinds[ti.DATE] is ColumnKind.DATE
    assert kinds[ti.NULL] is kinds[255] is ColumnKind.UNKNOWN  # GEOMETRY


def test_a_kind_depends_on_sign_character_set_and_array() -> None:
    unsigned = {tp: _kind(tp, flag=ti.FLAG_UNSIGNED) for tp in ti.INTEGER_TYPES}
    assert unsigned.pop(ti.YEAR) is ColumnKind.YEAR  # which is stored signed whatever its flag says
    assert set(unsigned.values()) == {ColumnKind.UNSIGNED}
    assert {_kind(tp, charset="binary") for tp in ti.STRING_TYPES} == {ColumnKind.BINARY}
    assert {_kind(tp, array=True) for tp in range(256)} == {ColumnKind.JSON}
    assert _kind(ti.JSON, charset="binary") is ColumnKind.JSON


def test_a_kind_follows_a_changed_type_and_is_not_compared() -> None:
    signed = FieldType(ti.LONG)
    changed = replace(signed, flag=ti.FLAG_UNSIGNED)
    assert (signed.kind, changed.kind) == (ColumnKind.SIGNED, ColumnKind.UNSIGNED)
    assert replace(changed, flag=0) == signed
    assert hash(replace(changed, flag=0)) == hash(signed)
    assert pickle.loads(pickle.dumps(changed)).kind is ColumnKind.UNSIGNED
