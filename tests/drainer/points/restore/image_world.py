"""Images of recorded scenarios, made by following every row: what tests of restores begin with."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target
from drainer.points.image.manifest import ROWS, Manifest
from drainer.points.image.objects import objects_of
from drainer.points.image.parquet_writer import TableWriter
from drainer.points.restore.options import RestoreOptions
from drainer.points.restore.restoring import Outcome, Restoration
from drainer.reading.archive.columns.typed_values import ImageValues
from drainer.reading.archive.decode.images import Images
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import Ddl, Item, TableVersion
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tests.spark.support.replay_world import our_archive
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import TableInfo
from tidb_binlog.time_text import utc

Name = tuple[str, str]


def changes(stream: list[Item]) -> dict[Name, tuple[TableVersion, list[tuple[int, bytes]]]]:
    """Images that came (1) and went (-1) of each table, and its version then."""
    images, found = Images(), dict[Name, tuple[TableVersion, list[tuple[int, bytes]]]]()
    for item in stream:
        if isinstance(item, Ddl):
            if item.action in (ActionType.DROP_TABLE, ActionType.TRUNCATE_TABLE):
                for name in item.tables:
                    found.pop(name, None)
            continue
        for events in item.tables:
            for version, _, before, after in images.rows(events):
                _, some = found.get((version.schema, version.name), (version, []))
                found[version.schema, version.name] = version, some
                some += [(-1, before)] if before is not None else []
                some += [(1, after)] if after is not None else []
    return found


def rows_left(info: TableInfo, some: list[tuple[int, bytes]]) -> list[bytes]:
    """Rows that are there then. What came under an older definition is the same row as what went."""
    values = ImageValues(info, [one for one in info.columns if one.is_writable], by_name=False)
    counts, shown = Counter[object](), dict[object, bytes]()
    for sign, image in some:
        row = values.read(image)
        counts[row] += sign
        shown[row] = image
    assert min(counts.values(), default=0) >= 0
    return [shown[row] for row in counts.elements()]


def make_image(scenario: str, directory: Path, *, share: float) -> Manifest:
    """After this share of the scenario's items. Its tables are those that are there then."""
    stream = items(scenario)
    commit_ts = stream[int(len(stream) * share) - 1].commit_ts
    version = max(one.schema_version for one in stream if isinstance(one, Ddl) and one.commit_ts <= commit_ts)
    tracker = SchemaTracker.from_history(recorded.jobs(scenario), schema_version=version)
    there = {(schema.lower(), table.lower()) for schema, table in tracker.names()}
    tables = []
    for name, (version, some) in changes([one for one in stream if one.commit_ts <= commit_ts]).items():
        if (name[0].lower(), name[1].lower()) not in there:
            continue
        now = tracker.table_named(*name)
        assert now is not None
        writer = TableWriter(str(directory), replace(version, info=now.info))
        writer.begin()
        listed = rows_left(now.info, some)
        for number, half in enumerate((listed[::2], listed[1::2])):
            with writer.part(number) as part:
                part.add(half)
        tables.append(writer.table_image())
    objects_of(tracker, lambda schema, table: (schema, table)).store(str(directory))
    made = Manifest(commit_ts, utc(commit_ts), "recorded", "", (), tuple(tables), ROWS)
    made.store(str(directory))
    return made


ARCHIVE, IMAGE = "archive", "image"


def options(target: Target, directory: Path, **more: Any) -> RestoreOptions:
    settings = DrainerConfig(
        db_type="mysql",
        to_host=target.host,
        to_port=target.port,
        to_user=target.user,
        to_password=target.password,
        ignore_schemas="",
        **more.pop("settings", {}),
    )
    found = {"image": str(directory / IMAGE), "archive": str(directory / ARCHIVE)}
    return RestoreOptions(settings, **{**found, **more})


def restore(wanted: RestoreOptions, stop: asyncio.Event | None = None) -> Outcome:
    async def run() -> Outcome:
        return await Restoration(wanted, stop or asyncio.Event()).run()

    return asyncio.run(run())


def world(directory: Path, scenario: str, share: float) -> Manifest:
    made = make_image(scenario, directory / IMAGE, share=share)
    our_archive(scenario, directory / ARCHIVE)
    return made
