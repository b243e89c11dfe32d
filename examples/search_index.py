"""Feeds a full-text index: what is written upstream can be searched for a moment later.

    .venv/bin/python examples/search_index.py --etcd 127.0.0.1:2379 --index notes.db notes.entry title body
    sqlite3 notes.db "SELECT id, title FROM document WHERE document MATCH 'hello'"

The index is SQLite's FTS5; the same few lines feed any other. A document is replaced as a whole, so a
transaction that comes again after a kill changes nothing.
"""

from __future__ import annotations

import argparse
import sqlite3

import drainer


def open_index(path: str, columns: list[str]) -> sqlite3.Connection:
    index = sqlite3.connect(path)
    index.execute(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS document USING fts5(id UNINDEXED, {', '.join(columns)})"
    )
    index.commit()
    return index


def apply(index: sqlite3.Connection, item: drainer.Transaction | drainer.Ddl, columns: list[str]) -> None:
    """One item of the stream, in one transaction of the index."""
    if isinstance(item, drainer.Ddl):
        effect = item.effect
        if effect.emptied:
            index.execute("DELETE FROM document")
        index.commit()
        if effect.reread or effect.everything:
            raise SystemExit(f"rows became others by {item.query!r}: fill the index from the table anew")
        return
    marks = ", ".join("?" for _ in range(len(columns) + 1))
    for row in item.rows:
        if row.before is not None:
            before = ",".join(str(row.before[name]) for name in row.table.key)
            index.execute("DELETE FROM document WHERE id = ?", (before,))
        if row.after is not None:
            key = ",".join(map(str, row.key_values))
            index.execute("DELETE FROM document WHERE id = ?", (key,))
            texts = [row.after.get(name) for name in columns]
            index.execute(f"INSERT INTO document VALUES ({marks})", (key, *texts))
    index.commit()


def feed(etcd: str, path: str, table: str, columns: list[str]) -> None:
    """Until the process ends."""
    index = open_index(path, columns)
    with drainer.subscribe_sync(etcd, tables=[table], start="oldest", name="search-index") as stream:
        for item in stream:
            apply(index, item, columns)
            stream.done(item)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--etcd", default="127.0.0.1:2379")
    parser.add_argument("--index", default="index.db")
    parser.add_argument("table")
    parser.add_argument("columns", nargs="+")
    options = parser.parse_args()
    feed(options.etcd, options.index, options.table, options.columns)


if __name__ == "__main__":
    main()
