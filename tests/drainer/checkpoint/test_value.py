"""The checkpoint's row as text: every form that Go drainers wrote, and what is none."""

from __future__ import annotations

import pytest

from drainer.checkpoint.value import Checkpoint
from tests.drainer.checkpoint.go_rows import GO_ROWS
from tidb_binlog.errors import Corruption


def test_json_has_the_order_of_the_go_drainer() -> None:
    text = Checkpoint(414529105591271429, False, 57, ts_map={"primary-ts": 1, "secondary-ts": 2}).to_json()
    assert text == (
        '{"consistent":false,"commitTS":414529105591271429,'
        '"ts-map":{"primary-ts":1,"secondary-ts":2},"schema-version":57}'
    )
    ours = Checkpoint(5, True, 57, 3, safe_until=9).to_json()
    assert ours == (
        '{"consistent":true,"commitTS":5,"ts-map":{},"schema-version":57,"epoch":3,"safe-until":9}'
    ), "what a Go drainer reads past comes behind what it reads"


@pytest.mark.parametrize("form", GO_ROWS)
def test_every_form_of_the_go_drainer_is_read(form: str) -> None:
    text, expected = GO_ROWS[form]
    assert Checkpoint.from_json(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "not JSON"),
        ("", "not JSON"),
        ('{"commitTS":5', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("5", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"commitTS":"5"}', "commitTS is not a whole number"),
        ('{"commitTS":5.0}', "commitTS is not a whole number"),
        ('{"commitTS":true}', "commitTS is not a whole number"),
        ('{"commitTS":-1}', "commitTS is not a whole number"),
        ('{"commitTS":9223372036854775808}', "commitTS is not a whole number"),
        ('{"consistent":1}', "consistent is not a boolean"),
        ('{"ts-map":[]}', "ts-map is not a JSON object"),
        ('{"ts-map":{"primary-ts":"x"}}', "primary-ts is not a whole number"),
        ('{"schema-version":{}}', "schema-version is not a whole number"),
    ],
)
def test_what_is_no_checkpoint_is_refused_and_named(text: str | None, why: str) -> None:
    with pytest.raises(Corruption, match=f"checkpoint row cannot be read: .*{why}"):
        Checkpoint.from_json(text)


def test_the_pair_for_comparing_tools_leaves_older_keys() -> None:
    checkpoint = Checkpoint(9, False, 1, ts_map={"master-ts": 1, "primary-ts": 3, "secondary-ts": 4})
    assert checkpoint.mapped(77) == {"master-ts": 1, "primary-ts": 9, "secondary-ts": 77}
