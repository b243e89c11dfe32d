"""Followed catalog: databases and tables as a publisher knows them, read again when another one changed them.

Never   changes a catalogue: there is another one then
Tests   tests/pumpclient/publish/test_publisher_schema_publishing.py
"""

from __future__ import annotations

import json

from pumpclient.errors import InvalidBinlog
from pumpclient.publish.upstream_port import WritableUpstream
from pumpclient.schema import catalog
from pumpclient.schema.catalog import Catalog
from tidb_binlog.foreign_document import UNREADABLE


class FollowedCatalog:
    """One publisher's. `catalog` is at most as far behind as the last `follow`."""

    def __init__(self, upstream: WritableUpstream) -> None:
        self.catalog = Catalog(0)
        self._upstream = upstream

    async def load(self) -> None:
        """Load the catalogue; found one, above everything in the history, where there is none."""
        while True:
            await self.refresh()
            if self.catalog.revision:
                return
            version, last_id = 0, 0
            async for page in self._upstream.history.pages():
                for job in page:
                    version = max(version, job_number(job, "SchemaVersion"))
                    last_id = max(last_id, job_last_id(job))
            await self._upstream.catalog.begin(Catalog(0, version, last_id).head())

    async def refresh(self) -> None:
        """Read everything. Raises `Unavailable`."""
        stored = await self._upstream.catalog.load()
        if stored.head is not None:
            self.catalog = catalog.read(stored.revision, stored.head, stored.named)

    async def follow(self) -> None:
        """Read everything if anything has changed. Raises `Unavailable`."""
        if await self._upstream.catalog.revision() != self.catalog.revision:
            await self.refresh()


def job_number(job_json: bytes, name: str) -> int:
    """`id`, or a field of `binlog`, of a DDL job; 0 where it is missing."""
    try:
        job = json.loads(job_json)
        value = job.get(name) if name != "SchemaVersion" else (job.get("binlog") or {}).get(name)
        return int(value or 0)
    except UNREADABLE:
        raise InvalidBinlog(
            "the DDL job is not the JSON of a job", hint="pass the JSON of a TiDB DDL job"
        ) from None


def job_last_id(job_json: bytes) -> int:
    """The largest id that a job uses."""
    table = ((json.loads(job_json).get("binlog") or {}).get("TableInfo") or {}).get("id") or 0
    return max(int(table), *(job_number(job_json, name) for name in ("id", "schema_id", "table_id")))
