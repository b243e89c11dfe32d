"""Writing task: chunks are cut by bucket, by rows and by bytes, wherever batches end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from random import Random

import pyarrow as pa
import pytest

from drainer.spark.effects.batches import ARROW, PLACE_BITS
from drainer.spark.effects.operations import RowEffect
from drainer.spark.replay import writing_task

Rows = list[tuple[int, bytes | None]]


def batches(rows: Rows, pick: Random) -> Iterator[pa.RecordBatch]:
    at = 0
    while at < len(rows):
        some = rows[at : (at := at + pick.randrange(1, 30))]
        made = {name: [0] * len(some) for name in ARROW.names}
        places, images = zip(*some, strict=True)
        keys = [b"%d" % place for place in places]
        columns = made | {
            "place": places,
            "key": keys,
            "image": images,
            "before": keys,
            "reborn": [False] * len(some),
        }
        arrays = [pa.array(columns[field.name], field.type) for field in ARROW]
        yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def cut(rows: Rows, chunk_rows: int, chunk_bytes: int) -> Iterator[tuple[int, int, list[bytes | None]]]:
    """Row by row."""
    for bucket, some in groupby(rows, lambda row: row[0] >> PLACE_BITS):
        chunk, images, size = 0, [], 0
        for _, image in some:
            if images and (len(images) >= chunk_rows or size >= chunk_bytes):
                yield bucket, chunk, images
                chunk, images, size = chunk + 1, [], 0
            images.append(image)
            size += len(image or b"")
        yield bucket, chunk, images


@pytest.mark.parametrize("seed", range(6))
def test_chunks_are_what_row_by_row_would_be_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = Random(seed)
    chunk_rows, chunk_bytes = pick.choice((1, 7, 40)), pick.choice((1, 50, 400, 100_000))
    monkeypatch.setattr(writing_task, "CHUNK_BYTES", chunk_bytes)
    places = sorted({pick.randrange(9) << PLACE_BITS | pick.randrange(1000) for _ in range(400)})
    rows: Rows = [(at, pick.choice((None, b"", bytes(pick.randrange(60))))) for at in places]
    found = [
        (bucket, chunk, [effect[RowEffect._fields.index("image")] for effect in effects])
        for bucket, chunk, effects in writing_task.chunked(batches(rows, pick), chunk_rows)
    ]
    assert found == list(cut(rows, chunk_rows, chunk_bytes))
