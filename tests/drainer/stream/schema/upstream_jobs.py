"""Upstream jobs: the DDL jobs that an upstream makes, with its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidb_binlog.ddl_job import DdlJob

INT = {"Tp": 3, "Flag": 0, "Flen": 11, "Decimal": 0, "Charset": "binary", "Collate": "binary", "Elems": None}


def table(
    table_id: int, name: str, *columns: str, partitions: tuple[int, ...] = (), **more: Any
) -> dict[str, Any]:
    cols = [
        {"id": number + 1, "name": {"O": column, "L": column}, "offset": number, "type": INT, "state": 5}
        for number, column in enumerate(columns or ("id",))
    ]
    document = {
        "id": table_id,
        "name": {"O": name, "L": name.lower()},
        "cols": cols,
        "index_info": None,
        **more,
    }
    if partitions:
        document["partition"] = {"definitions": [{"id": one, "name": {"O": f"p{one}"}} for one in partitions]}
    return document


def database(
    schema_id: int, name: str, charset: str = "utf8mb4", collate: str = "utf8mb4_bin"
) -> dict[str, Any]:
    return {
        "id": schema_id,
        "db_name": {"O": name, "L": name.lower()},
        "charset": charset,
        "collate": collate,
    }


class Upstream:
    """Numbers jobs as they come: job id, schema version and finished ts all follow the same counter."""

    def __init__(self) -> None:
        self.count = 0
        self.jobs: list[DdlJob] = []

    def job(
        self,
        action: int,
        *,
        schema_id: int = 1000,
        table_id: int = 0,
        info: dict[str, Any] | None = None,
        infos: list[dict[str, Any]] | None = None,
        db: dict[str, Any] | None = None,
        query: str = "",
        state: int = 6,
        raw_args: Any = None,
        schema_name: str = "",
        sub_jobs: Sequence[dict[str, Any]] = (),
        start_ts: int = 0,
    ) -> DdlJob:
        self.count += 1
        job = DdlJob.from_document(
            {
                "id": self.count,
                "type": action,
                "state": state,
                "schema_id": schema_id,
                "table_id": table_id or (info or {}).get("id", 0),
                "schema_name": schema_name,
                "query": query,
                "start_ts": start_ts,
                "raw_args": raw_args,
                "multi_schema_info": {"sub_jobs": sub_jobs} if sub_jobs else None,
                "binlog": {
                    "SchemaVersion": self.count,
                    "FinishedTS": self.count * 10,
                    "DBInfo": db,
                    "TableInfo": info,
                    "MultipleTableInfos": infos,
                },
            }
        )
        self.jobs.append(job)
        return job

    def create_database(self, schema_id: int = 1000, name: str = "Db") -> DdlJob:
        return self.job(1, schema_id=schema_id, db=database(schema_id, name))

    def create(self, info: dict[str, Any], schema_id: int = 1000) -> DdlJob:
        return self.job(3, schema_id=schema_id, info=info)


def with_default(table_id: int, default: str | None, *columns: str) -> dict[str, Any]:
    document = table(table_id, "t", *columns)
    document["cols"][-1]["origin_default"] = default
    return document
