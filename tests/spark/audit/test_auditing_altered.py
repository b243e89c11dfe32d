"""Audits of archives without definitions, as a Go drainer leaves them: columns of a table came and went."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from drainer.spark import image
from drainer.spark.audit.auditing import audit
from drainer.txn import INSERT, UPDATE, Ddl, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import column, key, kind, table
from tests.drainer.support import archive_life
from tidb_binlog.rowcodec.encoder import RowEncoder

FIRST = 1 << 40


async def altered(directory: Path) -> None:
    """A column is added, then another one dropped; rows come under each definition, and are changed later."""
    columns = [column(1, "id", key("int")), column(2, "a", kind("varchar")), column(3, "b", kind("int"))]
    infos = [table(columns[0], columns[1]), table(*columns), table(columns[0], columns[2])]
    name = (("d", "t"),)
    stream: list[Any] = []

    def change(action: int, query: str) -> None:
        stream.append(Ddl(FIRST + 10 * len(stream), len(stream), action, "d", query, name, len(stream)))

    def rows(number: int, *events: tuple[int, bytes]) -> None:
        ts = FIRST + 10 * len(stream)
        version = TableVersion(infos[number], "d", "t", number)
        some = TableEvents(version, [kind for kind, _ in events], [row for _, row in events], 0)
        stream.append(Transaction(ts - 1, ts, (some,), 1))

    first, second, third = map(RowEncoder, infos)
    change(3, "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9))")
    for number in range(5):
        rows(0, (INSERT, first.insert((number, "x"), number)))
    change(5, "ALTER TABLE t ADD COLUMN b INT")
    for number in range(5, 10):
        rows(1, (INSERT, second.insert((number, "x", 7), number)))
    change(6, "ALTER TABLE t DROP COLUMN a")
    for number in range(10, 15):
        rows(2, (INSERT, third.insert((number, 8), number)))
    rows(2, (UPDATE, third.update((10, 8), (10, 9))))
    await archive_life.whole(directory, archive_life.Ready(stream))


async def test_a_table_is_compared_by_its_key_after_its_columns_changed(tmp_path: Path) -> None:
    await altered(tmp_path / "archive")
    archive, made = str(tmp_path / "archive"), str(tmp_path / "image")

    def no_spark() -> Any:
        raise AssertionError("there is little to read")

    assert image.make(no_spark, archive, made, small_bytes=1 << 20).tables[0].rows == 15
    shutil.rmtree(tmp_path / "archive" / "index")
    found = audit(None, archive, image=made)
    notes = [note.text for one in found.findings.values() for note in one.notes]
    assert not [text for text in notes if "key" in text], notes
    assert all(one.listed == [] for one in found.findings.values())
    assert found.contents is not None
    (compared,) = found.contents.tables
    assert dict(compared.states) == {"equal": 10, "compared in part": 5}
