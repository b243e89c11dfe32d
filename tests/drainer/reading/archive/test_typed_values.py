"""Values of every recorded scenario, against what others say of them: the Go drainer's decoded output, and
the contents that the tables had in the end."""

from __future__ import annotations

import base64
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from drainer.reading.archive import archive_source
from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.views import changes
from drainer.reading.archive.views.view import ReadTask, portions
from drainer.txn import TableVersion
from tests.drainer.reading.archive.support import corpus, go_values
from tests.drainer.reading.archive.support.corpus import BETWEEN, LACKING_COLUMNS, WRONG_NAMES
from tests.drainer.reading.archive.support.go_values import Invalid
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.table_info import DECIMAL, FieldType

Rows = list[dict[str, Any]]
Place = tuple[int, int]


class Made:
    """An archive of a scenario: what the views are asked for, and the definitions of its rows."""

    def __init__(self, scenario: str, made_by: str, directory: Path) -> None:
        self.scenario, self.made_by = scenario, made_by
        if made_by == "here":
            location = corpus.our_archive(items(scenario), directory)
        elif made_by == "relay":
            location = corpus.our_relay(items(scenario), directory, 32 << 10)
        else:
            location = corpus.unpacked(scenario, "events", directory)
        self.options = {"path": location.uri}
        known: Definitions | None = None
        if made_by == "go":
            known = corpus.of_history(scenario)
            self.options["definitions"] = known.to_json()
        self._whole = ArchiveSource(self.options)
        self.versions: dict[Place, TableVersion] = {}
        for record in corpus.records(location, known):
            if isinstance(record, Changes):
                self.versions |= {
                    (record.commit_ts, seq): row[0] for seq, row in enumerate(record.rows, record.first_seq)
                }

    def tables(self) -> list[str]:
        return list(dict.fromkeys(".".join(version.downstream) for version in self.versions.values()))

    def archive(self, **options: str) -> ArchiveSource:
        """Looked over once: a scenario has many tables."""
        made = ArchiveSource({**self.options, **options})
        vars(made).update({name: getattr(self._whole, name) for name in ("survey", "definitions")})
        return made

    def rows(self, **options: str) -> Rows:
        archive = self.archive(**options)
        task, view = archive.task(archive.schema), archive.options.view
        return [
            row
            for part in archive.parts()
            for batch in archive_source.read(task, view, part)
            for row in batch.to_pylist()
        ]


@functools.cache
def expected_rows(scenario: str) -> dict[Place, dict[str, Any]]:
    """Events by commit_ts and place in the transaction."""
    return {
        (line["commit_ts"], seq): event
        for line in recorded.events(scenario)
        for seq, event in enumerate(line.get("events", ()))
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Made]:
    @functools.cache
    def make(scenario: str, made_by: str) -> Made:
        return Made(scenario, made_by, tmp_path_factory.mktemp(made_by) / scenario)

    return make


MADE = [(scenario, made_by) for scenario in recorded.VARIED for made_by in ("go", "here")]
RELAYS = [(scenario, "relay") for scenario in ("charset", "ddl", "keys", "types")]


@pytest.mark.parametrize(("scenario", "made_by"), MADE + RELAYS)
def test_images_as_json_are_what_the_go_drainer_decoded(
    scenario: str, made_by: str, made: Callable[[str, str], Made]
) -> None:
    archive, expected = made(scenario, made_by), expected_rows(scenario)
    rows = {(row["_commit_ts"], row["_seq"]): row for row in archive.rows()}
    seen = {commit_ts for commit_ts, _ in expected}
    assert [place for place in sorted(rows) if place[0] in seen] == sorted(expected)
    wrong_names = lacking = 0
    digits = set()
    for place, event in expected.items():
        row, version = rows[place], archive.versions[place]
        kinds = {column.name: column.type for column in version.info.columns}
        assert row["_change_type"] == event["tp"]
        wrong_names += (row["_schema"], row["_table"]) != (event["schema"], event["table"])
        named = {one["name"] for one in event["columns"]}
        lacking += bool(json.loads(row["after"] or row["before"]).keys() - named)
        generated = {column.name for column in version.info.columns if not column.is_writable}
        for side, half in go_values.halves(event).items():
            image = None if row[side] is None else json.loads(row[side])
            if half is None or image is None:
                assert half is image is None
                continue
            values = {name: value for name, value in half.items() if name not in generated}
            found = {name: go_values.from_json(kinds[name], image[name]) for name in values}
            wanted = {name: go_values.as_json(kinds[name], value) for name, value in values.items()}
            if found != wanted:
                digits.add(place)
                assert decimals(found, kinds) == decimals(wanted, kinds)
    assert wrong_names == (0 if made_by == "go" else WRONG_NAMES.get(scenario, 0))
    assert lacking == (0 if made_by == "go" else LACKING_COLUMNS.get(scenario, 0))
    assert len(digits) == (BETWEEN.get(scenario, 0) if made_by == "go" else 0)


def decimals(image: Mapping[str, Any], kinds: Mapping[str, FieldType]) -> dict[str, Any]:
    """An image with DECIMALs as numbers, whatever digits they are written with."""
    return {
        name: Decimal(value) if value is not None and kinds[name].tp == DECIMAL else value
        for name, value in image.items()
    }


def typed_rows(archive: Made, table: str, way: str) -> Iterator[dict[str, Any]]:
    """Rows of one table, as many at once as it goes, or one by one."""
    if way == "at once":
        yield from archive.rows(table=table)
        return
    found = archive.archive(table=table)
    for part in found.slices():
        task = ReadTask(
            found.options.location,
            part,
            found.options.selection,
            found.definitions,
            found.schema,
            found.version,
        )
        records = reading.read(task.location, part, task.selection, task.definitions)
        for portion in portions(records):
            yield from changes.TypedRows(task).batch(portion).to_pylist()


@pytest.mark.parametrize(("scenario", "made_by"), MADE)
def test_typed_columns_are_what_the_go_drainer_decoded(
    scenario: str, made_by: str, made: Callable[[str, str], Made]
) -> None:
    archive, expected = made(scenario, made_by), expected_rows(scenario)
    seen = {commit_ts for commit_ts, _ in expected}
    places = set()
    ways = ("at once", "one by one") if made_by == "here" else ("at once",)
    for table in archive.tables():
        newest = archive.archive(table=table).version
        assert newest is not None
        found = [list(typed_rows(archive, table, way)) for way in ways]
        assert found[0] == found[-1]
        for row in found[0]:
            place = row["_commit_ts"], row["_seq"]
            if place[0] in seen:
                places.add(place)
                assert_typed(row, go_values.halves(expected[place]), archive.versions[place], newest)
    assert places == set(expected)


def assert_typed(
    row: Mapping[str, Any], halves: Mapping[str, Any], version: TableVersion, newest: TableVersion
) -> None:
    """Columns that are the same in the newest definition."""
    kinds = {column.name: column for column in version.info.columns}
    invalid = json.loads(row["_invalid"] or "{}")
    for side, values in halves.items():
        assert (row[side] is None) == (values is None)
        for column in newest.info.columns:
            mine = kinds.get(column.name)
            if (
                values is None
                or mine is None
                or not column.is_writable
                or mine.type != column.type
                or column.name not in values
            ):
                continue
            if version.id == newest.id and mine.id != column.id:
                continue
            found = go_values.from_json(column.type, row[side][column.name])
            name, wanted = f"{side}.{column.name}", go_values.typed(column.type, values[column.name])
            if isinstance(wanted, Invalid):
                assert (found, invalid.get(name)) == (None, wanted.text), (name, row)
            else:
                assert found == wanted, (name, row)
                assert name not in invalid


# Scenarios in which no job takes rows away, brings others, or gives them another name or more columns.
ROWS_ALONE = ("basic", "charset", "ddl-fk", "keys", "types")


@pytest.mark.parametrize("scenario", ROWS_ALONE)
def test_the_last_image_of_each_row_is_what_the_table_has_in_the_end(
    scenario: str, made: Callable[[str, str], Made]
) -> None:
    rows = made(scenario, "here").rows()
    for database, found in recorded.expected(scenario).items():
        for name, table in found["tables"].items():
            changes = [row for row in rows if (row["_schema"], row["_table"]) == (database, name)]
            columns = {one["name"]: one for one in table["columns"] if not one["generated"]}
            left, wanted = remaining(changes, columns, table["key"]), Counter[Image]()
            names = [one["name"] for one in table["columns"]]
            for row in table["rows"]:
                image = {
                    column: upstream(columns[column], value)
                    for column, value in zip(names, row, strict=True)
                    if column in columns
                }
                wanted[tuple(image.items())] += 1
            if table["key"]:  # a row that was written before a column was added does not have it
                by_key = {of_key(image, table["key"]): dict(image) for image in left}
                wanted_by_key = {of_key(image, table["key"]): dict(image) for image in wanted}
                assert by_key.keys() == wanted_by_key.keys()
                assert all(by_key[key].items() <= wanted_by_key[key].items() for key in by_key)
            else:
                assert left == wanted, f"{database}.{name}"


Image = tuple[tuple[str, Any], ...]


def of_key(image: Image, key: list[str]) -> Image:
    return tuple((name, value) for name, value in image if name in key)


def remaining(changes: Rows, columns: Mapping[str, Mapping[str, Any]], key: list[str]) -> Counter[Image]:
    """Images that nothing took away."""
    by_key: dict[Image, Image] = {}
    left: Counter[Image] = Counter()
    for row in changes:
        if key:
            image = json.loads(row["after"] or row["before"])
            assert json.loads(row["key"]) == {column: image[column] for column in image if column in key}
        for side, number in (("before", -1), ("after", 1)):
            if row[side] is not None:
                cells = json.loads(row[side])
                found = tuple(
                    (name, as_upstream(columns[name], cells[name])) for name in columns if name in cells
                )
                left[found] += number
                if number < 0:
                    assert by_key.pop(of_key(found, key), None) or not key
                else:
                    by_key[of_key(found, key)] = found
    return Counter(by_key.values()) if key else +left


def upstream(column: Mapping[str, Any], value: Any) -> Any:
    """A value of the final contents."""
    if value is None:
        return None
    if column["data_type"] == "json":
        return json.dumps(json.loads(value), sort_keys=True)
    if column["repr"] == "double":
        return float(value)
    return value["hex"] if isinstance(value, dict) else value


def as_upstream(column: Mapping[str, Any], cell: Any) -> Any:
    """A cell of an image as the final contents have it."""
    if isinstance(cell, dict):
        return base64.b64decode(cell["base64"]).hex()
    if cell is None or column["repr"] == "double":
        return cell
    if column["repr"] == "hex":
        return base64.b64decode(cell).hex()
    return upstream(column, str(cell))
