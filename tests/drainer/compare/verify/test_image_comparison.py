"""A downstream beside an image: its rows are there, all of them, and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drainer.compare.verify import image_comparison
from drainer.compare.verify.compared_table import NOT_SHOWN
from drainer.compare.verify.image_comparison import ImageVerification
from drainer.compare.verify.result import Kind, RowDifference, State, Verification
from drainer.mysql.connection import Target
from drainer.points.image.manifest import Manifest, TableImage
from drainer.points.image.parquet_reader import TableReader
from drainer.reading.subscribe.table_choice import TablePattern
from tests.drainer.points.restore.image_world import IMAGE, options, restore, world
from tests.drainer.support.apply_life import run
from tidb_binlog.errors import ConfigError, Corruption

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


def test_what_cannot_be_read_keeps_to_its_table(
    target: Target, tmp_path: Path, restored: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that the user may not see is not absent; a value that makes no sense is of one table."""
    _, second, *others = restored.tables
    grants = [f"GRANT SELECT ON `{one.schema}`.`{one.table}` TO half@'%'" for one in (second, *others)]
    run(target, "CREATE OR REPLACE USER half@'%' IDENTIFIED BY 'x'", *grants, "SELECT 1")
    run(target, "GRANT SELECT ON tidb_binlog.* TO half@'%'", "SELECT 1")
    reader = image_comparison.TableReader

    def damaged(directory: str, image: TableImage) -> TableReader:
        if image.table == second.table:
            raise Corruption("a page is damaged")
        return reader(directory, image)

    monkeypatch.setattr(image_comparison, "TableReader", damaged)
    try:
        found = verified(replace(target, user="half", password="x"), tmp_path)
    finally:
        run(target, "DROP USER half@'%'", "SELECT 1")
    assert [(one.state, one.why) for one in found.tables[:2]] == [
        (State.NOT_COMPARABLE, f"downstream does not show it: {NOT_SHOWN}"),
        (State.NOT_COMPARABLE, "a page is damaged"),
    ]
    assert {one.state for one in found.tables[2:]} == {State.EQUAL}
