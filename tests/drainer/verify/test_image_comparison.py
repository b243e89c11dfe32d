"""A downstream beside an image: its rows are there, all of them, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import ConfigError
from drainer.image.manifest import Manifest
from drainer.reading.subscribe.table_choice import TablePattern
from drainer.sink.mysql.connection import Target
from drainer.verify.image_comparison import ImageVerification
from drainer.verify.result import Kind, RowDifference, State, Verification
from tests.drainer.restore.test_restoring import IMAGE, options, restore, world
from tests.drainer.support.apply_life import run

pytestmark = pytest.mark.integration


def verified(
    target: Target, directory: Path, *selected: str, told: list[RowDifference] | None = None
) -> Verification:
    verification = ImageVerification(
        target,
        str(directory / IMAGE),
        "tidb_binlog",
        [TablePattern.of(one) for one in selected],
        on_difference=None if told is None else lambda _, one: told.append(one),
    )
    return verification.run()


@pytest.fixture
def restored(target: Target, tmp_path: Path) -> Manifest:
    """Tables of all types, with and without keys, as the image has them."""
    made = world(tmp_path, "types", 0.8)
    assert restore(options(target, tmp_path, archive="")).is_equal
    return made


def test_what_differs_from_an_image_is_found(target: Target, tmp_path: Path, restored: Manifest) -> None:
    found = verified(target, tmp_path)
    assert [one.why for one in found.tables if one.state is not State.EQUAL] == []
    assert (found.rows, found.ts) == (sum(one.rows for one in restored.tables), restored.commit_ts)

    image = next(one for one in restored.tables if one.rows > 1)
    run(target, f"DELETE FROM `{image.schema}`.`{image.table}` LIMIT 1", "SELECT 1")
    told: list[RowDifference] = []
    found = verified(target, tmp_path, told=told)
    (table,) = [one for one in found.tables if one.state is not State.EQUAL]
    assert (table.downstream, table.missing, table.extra) == ((image.schema, image.table), 1, 0)
    assert told == list(table.differences)
    assert told[0].kind is Kind.MISSING

    run(target, f"DROP TABLE `{image.schema}`.`{image.table}`", "SELECT 1")
    (table,) = verified(target, tmp_path, f"{image.schema}.{image.table}").tables
    assert (table.state, table.missing) == (State.DIFFERS, image.rows)
    with pytest.raises(ConfigError, match="no such table"):
        verified(target, tmp_path, "no.where")
