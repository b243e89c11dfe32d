"""JSON document: programs get every value whole, and can tell what was not compared."""

from __future__ import annotations

import json

from drainer.compare.report.json_document import document
from tests.drainer.compare.report.results import FAULTY, SOUND, TS


def test_the_document_of_a_faulty_comparison() -> None:
    made = json.loads(json.dumps(document(FAULTY)))
    assert (made["version"], made["state"], made["ts"]) == (1, "differs", TS)
    assert (made["time"], made["seconds"], made["held_ms"]) == ("2023-11-14T22:13:20.000Z", 12.0, 3.25)
    assert (made["rows"], made["wrong"], made["looked_again"]) == (1005, 6, 2)
    item, log, equal, waiting = made["tables"]
    assert item["upstream"] == ["shop.item", "shop2.item"]
    assert (item["downstream"], item["missing"], item["extra"], item["changed"]) == ("all.item", 2, 1, 1)
    changed, missing, extra = item["differences"]
    assert changed["upstream"] == {"id": "7", "note": "''", "body": "'{}'"}
    assert changed["downstream"]["note"] == "NULL"
    assert changed["columns"] == ["note"]
    assert changed["committed"] == "2023-11-14T22:13:19.000Z"
    assert len(missing["upstream"]["note"]) == 305
    assert missing["downstream"] is None
    assert missing["commit_ts"] is None
    assert extra["key"] == {"id": "-1"}
    assert log["differences"][0]["copies"] == {"upstream": 1, "downstream": 3}
    assert log["differences"][0]["key"] is None
    secret = item["columns"][1]
    assert (secret["how"], secret["why"]) == ("not compared", "left out by a column rule")
    assert (equal["state"], waiting["state"]) == ("equal", "not comparable")
    assert waiting["why"] == "it waits: a DDL was refused"


def test_the_document_of_equal_sides() -> None:
    made = document(SOUND)
    assert (made["state"], made["wrong"], made["downstream_ts"]) == ("equal", 0, None)
