"""One dlt resource: the changes of a table since the last run, into whatever dlt loads.

    .venv/bin/python examples/dlt_resource.py --etcd 127.0.0.1:2379 shop.orders

A run takes what is committed when it begins, and ends. The position is in dlt's state, which is loaded with
the rows: a run that is killed is done again from where the last one ended, and rows are merged by key.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import dlt

import drainer


def changes(etcd: str, table: str, key: tuple[str, ...]) -> Any:
    """The resource. Deleted rows go downstream, too: `hard_delete` on the column `deleted`."""

    @dlt.resource(
        name=table.partition(".")[2],
        primary_key=key,
        write_disposition="merge",
        columns={"deleted": {"hard_delete": True}, "commit_ts": {"dedup_sort": "desc"}},
    )
    def rows() -> Iterator[list[dict[str, Any]]]:
        state = dlt.current.resource_state()
        start = state.get("position", "oldest")
        with drainer.subscribe_sync(etcd, tables=[table], start=start, stop="now") as stream:
            for change in stream:
                if isinstance(change, drainer.Ddl):
                    if change.effect != drainer.DdlEffect():  # rows that are merged cannot follow it
                        raise RuntimeError(f"load {table} anew: rows became others by {change.query!r}")
                else:
                    images: dict[tuple[Any, ...], dict[str, Any]] = {}  # of a key the last one counts
                    for row in change.rows:
                        for image, deleted in ((row.before, True), (row.after, False)):
                            if image is not None:
                                facts = {"commit_ts": change.commit_ts, "deleted": deleted}
                                images[tuple(image[name] for name in key)] = {**image, **facts}
                    yield list(images.values())
                state["position"] = change.commit_ts

    return rows()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--etcd", default="127.0.0.1:2379")
    parser.add_argument("--key", default="id")
    parser.add_argument("--destination", default="duckdb")
    parser.add_argument("table")
    options = parser.parse_args()
    pipeline = dlt.pipeline("changes", destination=options.destination, dataset_name="replica")
    print(pipeline.run(changes(options.etcd, options.table, tuple(options.key.split(",")))))


if __name__ == "__main__":
    main()
