"""Documents of nodes are read as far as they can be believed."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from tidb_binlog.status.codec import own, plain, read
from tidb_binlog.status.drainer import DdlStatus, DrainerDocument, LagStatus, LaneStatus
from tidb_binlog.status.pump import PumpDocument, PumpStatus, PurgeOutlook, RetentionStatus

GO_PUMP = {"status": {"p": {"nodeId": "p"}}, "CommitTS": 7, "Checkpoint": {}, "ErrMsg": ""}
GO_DRAINER = {"PumpPos": {"p": 3}, "Synced": True, "LastTS": 9, "TsMap": ""}


def test_go_nodes_say_little_and_that_is_read() -> None:
    pump = read(GO_PUMP, PumpDocument)
    assert (pump.commit_ts, pump.pump, msgspec.to_builtins(pump)) == (7, None, GO_PUMP | {"pump": None})
    drainer = read(GO_DRAINER, DrainerDocument)
    assert (drainer.pump_pos, drainer.last_ts, drainer.lag) == ({"p": 3}, 9, msgspec.UNSET)


def test_a_form_is_taken_apart_once_however_many_nodes_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[type] = []

    def fields(form: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
        asked.append(form)
        return of_msgspec(form)

    of_msgspec = msgspec.structs.fields
    monkeypatch.setattr(msgspec.structs, "fields", fields)
    for _ in range(50):
        read({"pump": {"retention": {}}}, PumpDocument)
    assert len(asked) == len(set(asked))


def test_what_newer_nodes_add_is_left_out_and_what_older_ones_lack_has_a_default() -> None:
    found = read({"pump": {"watermark": 4, "wings": 2, "retention": {"feathers": []}}}, PumpDocument)
    assert found.pump == PumpStatus(watermark=4, retention=RetentionStatus())


@pytest.mark.parametrize(
    "nonsense", [None, 1, "x", [], [[]], {"pump": 7}, {"pump": {"disk": [], "oldest": {"a": 1}}}, True]
)
def test_nonsense_says_nothing(nonsense: object) -> None:
    found = read(nonsense, PumpDocument)
    assert found.commit_ts == 0
    assert found.pump is None or found.pump == PumpStatus()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1, 1.0),
        (1.5, 1.5),
        ("1", 0.0),
        (True, 0.0),
        (math.inf, 0.0),
        (math.nan, 0.0),
        (10**400, 0.0),
        ([], 0.0),
    ],
)
def test_numbers_are_numbers_of_64_bits(value: object, seconds: float) -> None:
    assert read({"Lag": {"total_s": value}}, DrainerDocument).lag == LagStatus(total_s=seconds)


def test_of_a_list_the_part_that_can_be_read_is() -> None:
    document = {"held_up_by": ["a ", 1, None, "b"], "drainers": [{"node_id": "d"}, 4, {"lost": "no"}]}
    found = read(document, RetentionStatus)
    assert found.held_up_by == ["a", "b"]
    assert found.drainers == [PurgeOutlook(node_id="d"), PurgeOutlook()]


@pytest.mark.parametrize("form", [PumpDocument, DrainerDocument])
def test_what_is_written_is_read(form: type[Any]) -> None:
    whole = form(**({"pump": PumpStatus()} if form is PumpDocument else {"lag": LagStatus(total_s=2.5)}))
    assert read(json.loads(json.dumps(msgspec.to_builtins(whole))), form) == whole


def test_a_document_of_one_s_own_is_read_as_any_other() -> None:
    lanes = [LaneStatus(lane=3, waiting_for="a lock", tries=2), LaneStatus(lane=4)]
    whole = DrainerDocument(lanes=lanes, lag=LagStatus(total_s=2.5), ddl=DdlStatus(held_at=7))
    document = {**plain(whole), "Wings": 2}
    assert own(document, DrainerDocument) == whole == read(document, DrainerDocument)
    odd = {**document, "Archive": {"waiting_for": None, "last_commit_ts": 5}, "Transactions": "many"}
    found = own(odd, DrainerDocument)
    assert found == read(odd, DrainerDocument)
    assert (found.lanes, found.transactions) == (lanes, msgspec.UNSET)
