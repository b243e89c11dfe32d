"""A life of the apply side whose stream others can hold, by the routes of a drainer without its socket."""

from __future__ import annotations

import json

from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.mysql.connection import Target
from drainer.operate.control.hold import Hold
from drainer.operate.control.http import add_hold_routes
from drainer.points.snapshot.drainer_hold import DrainerHold
from drainer.stream.pull.merged import Merged
from drainer.txn import INSERT
from tests.drainer.support.apply_life import Recording, column, create_job, created
from tidb_binlog import binlog
from tidb_binlog.clock import SystemClock
from tidb_binlog.config import loading
from tidb_binlog.door.http.routes import Guard, Peer, Request, Response, Routes
from tidb_binlog.net.http_client import Page
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, TableInfo

TABLES = ("t", "u")
FIRST_TABLE_ID = 7


class Everybody(Guard):
    def refusal(self, request: Request) -> Response | None:
        return None


def hold_of(hold: Hold) -> DrainerHold:
    """What asks a drainer that has this hold."""
    routes = Routes()
    add_hold_routes(routes, hold)

    async def ask(address: str, path: str, _timeout_s: float) -> Page:
        request = Request("PUT", path, address, None, Peer("127.0.0.1"))
        response = await routes.answer(request, Everybody())
        return Page(response.status, response.body, 0.0, 0.0, None)

    async def locate() -> str:
        return "drainer:8249"

    return DrainerHold(locate, None, SystemClock(), ask)


def settings_of(target: Target, **more: object) -> DrainerConfig:
    """A drainer's configuration with this downstream."""
    settings = loading.load(DrainerConfig, [], {}, program="drainer", env_prefix=ENV_PREFIX)
    given = {"host": target.host, "port": target.port, "user": target.user, "password": target.password}
    for name, value in ({f"to_{name}": value for name, value in given.items()} | more).items():
        object.__setattr__(settings, name, value)
    return settings


class TwoTables:
    """`d.t` and `d.u`, with a number and a text; a transaction writes the same number into both."""

    def __init__(self, *, first_ts: int = 900) -> None:
        self.jobs: list[bytes] = []
        self.created: list[Merged] = []
        self._encoders: list[RowEncoder] = []
        for number, name in enumerate(TABLES):
            columns = (column(1, "a", LONG, FLAG_NOT_NULL | FLAG_PRIMARY), column(2, "b", VARCHAR))
            table = TableInfo(FIRST_TABLE_ID + number, name, columns, pk_is_handle=True)
            job = create_job(table, job_id=9 + number, schema_version=1 + number)
            self.jobs.append(json.dumps(job).encode())
            self.created.append(created(job, first_ts + number * 20))
            self._encoders.append(RowEncoder(table))

    def changes(self, row: int) -> list[tuple[int, bytes]]:
        """(table id, encoded row) of the INSERT of a row into both."""
        values = {"a": row, "b": "x"}
        return [
            (FIRST_TABLE_ID + number, encoder.insert(values, rowid=row))
            for number, encoder in enumerate(self._encoders)
        ]

    def insert(self, row: int, commit_ts: int) -> Merged:
        """A whole transaction."""
        changes = [(table_id, [INSERT], [encoded]) for table_id, encoded in self.changes(row)]
        payload = binlog.join(
            binlog.prewrite(commit_ts - 1, b"k", prewrite_value(2, changes)),
            binlog.commit(commit_ts - 1, commit_ts, b"k"),
        )
        return Merged(commit_ts, payload)

    def recording(self, rows: range, cluster_id: int = 4711) -> Recording:
        """Rows whose number is their commit_ts."""
        entries = [self.insert(row, row) for row in rows]
        return Recording(cluster_id, self.jobs, [*self.created, *entries])
