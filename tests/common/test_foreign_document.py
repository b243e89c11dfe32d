"""Everything that is read from etcd, from nodes and from the downstream may hold anything: one error of ours,
or "it says nothing", never another exception. Each reader gets right documents with one part spoiled."""

from __future__ import annotations

import contextlib
import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlogctl.doctor.gather import answers
from drainer.checkpoint import savepoint
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.ddl.quarantine import store as quarantine_table
from drainer.formats.segment_index import SegmentIndex
from drainer.operate.status import pump_status
from pumpclient.schema import catalog
from tests.cases import case
from tidb_binlog import ddl_job, time_text
from tidb_binlog.cluster import overview
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.errors import BinlogError, Corruption
from tidb_binlog.foreign_document import json_object, reading, typed
from tidb_binlog.process.process_identity import ProcessIdentity, is_gone
from tidb_binlog.table_info import TableInfo
from tidb_binlog.upstream.standalone import catalog as standalone_history
from tidb_binlog.upstream.standalone import layout
from tidb_binlog.upstream.tidb.meta import history as tidb_history

STATUS = NodeStatus(
    "p1", "10.0.0.1:8250", "online", 470642871095787520, 470642871095787521, label={"zone": "a"}
)
JOB = {
    "id": 71, "type": 3, "state": 6, "schema_id": 2, "table_id": 70, "schema_name": "shop", "query": "q",
    "real_start_ts": 1, "binlog": {"SchemaVersion": 9, "TableInfo": {"id": 70, "name": {"O": "t", "L": "t"}}},
}  # fmt: skip
TABLE = {
    "schema_id": 2, "columns_made": 1, "indexes_made": 0,
    "table": {"id": 70, "name": {"O": "t", "L": "t"}, "cols": [], "index_info": []},
}  # fmt: skip
PUMP_STATUS: dict[str, Any] = {
    "CommitTS": 470642871095787520, "Checkpoint": {}, "ErrMsg": "",
    "pump": {
        "watermark": 470642871095787520, "node_id": "p1", "cluster_id": 7, "open_prewrites": 1, "gc_ts": 5,
        "time_s": 1795345200.5, "disk": {"available": 5, "floor": 1},
        "oldest": [{"start_ts": 5, "age_s": 60.5, "table_id": 4, "ddl_query": "x", "upstream": "y"}],
        "stages": {"indexed": {"lag_s": 0.5}},
        "retention": {"age_s": 3.5, "alarm_s": 4, "drainers": [{"node_id": "d", "left_s": 7.5}]},
    },
}  # fmt: skip
DRAINER_STATUS: dict[str, Any] = {
    "LastTS": 470642871095787520, "AppliedTS": 1, "NodeID": "d", "ClusterID": 7, "Time": 1795345200.5,
    "Pumps": {"p1": {"connected": False, "error": "e"}}, "Control": {"paused": False}, "Doing": "applying",
    "DDL": {"waiting": [{"job_id": 5}]},
    "Lag": {"total_s": 40.5, "reason": "r", "rows_per_s": 5, "eta_s": None},
}  # fmt: skip


def _overview(body: bytes, kind: str) -> object:
    document = json_object(body)
    seen = overview.NodeSnapshot(
        kind, "n", "h:1", "online", True, STATUS.update_ts, STATUS.update_ts, document, ""
    )
    built = overview.build([seen], 1795345200.0)
    return [time_text.local(line.position_ts) for line in built.nodes]


def _entry(body: bytes) -> object:
    """What `binlogctl` does with an entry."""
    status = NodeStatus.from_json(body)
    return time_text.local(status.max_commit_ts), time_text.local(status.update_ts), status.to_json()


def _identity(body: bytes) -> object:
    found = ProcessIdentity.from_json(body)
    return found is not None and is_gone(found)


def _quarantine(body: bytes) -> object:
    text = body.decode("utf-8", "replace")
    row = (5, 6, 7, 8, 9, 0, text, "q", "r", datetime.datetime(2026, 1, 1), "", "", 0, text, 0, text)
    return quarantine_table._entry(row)


def _catalog(body: bytes) -> object:
    return catalog.read(1, body, {"shop": b'{"name":"shop","id":2}', "shop/t": json.dumps(TABLE).encode()})


def _definition(body: bytes) -> object:
    return catalog.read(1, b'{"version":1,"last_id":2}', {"shop": b'{"name":"shop","id":2}', "shop/t": body})


def _columns(body: bytes) -> object:
    return TableInfo.from_json(ddl_job.decode(body)).to_json()


def _database(body: bytes) -> object:
    return catalog.read(1, b'{"version":1,"last_id":2}', {"shop": body, "shop/t": json.dumps(TABLE).encode()})


READERS: dict[str, tuple[Callable[[bytes], object], Any]] = {
    "registry entry": (_entry, json.loads(STATUS.to_json())),
    "owner of a lease": (_identity, {"host": "h", "pid": 5, "space": "s", "started": "1", "token": "t"}),
    "standalone transaction": (lambda body: layout.decode_entry(b"k", b"open " + body), 5),
    "standalone number": (lambda body: layout.decode_number(b"k", body), 5),
    "standalone job": (standalone_history.id_of_job, JOB),
    "schema's head": (_catalog, {"version": 1, "last_id": 2}),
    "table in the schema": (_definition, TABLE),
    "database in the schema": (_database, {"name": "shop", "id": 2}),
    "DDL job": (ddl_job.parse, JOB),
    "head of a DDL job": (ddl_job.head, JOB),
    "definition of a table": (_columns, {
        "id": 7, "name": {"O": "t"}, "charset": "utf8mb4", "is_common_handle": True,
        "cols": [{"id": 1, "name": {"O": "c"}, "offset": 0, "type": {"Tp": 3, "Flag": 0, "Elems": ["a"]}}],
        "index_info": [{"idx_name": {"O": "i"}, "idx_cols": [{"name": {"O": "c"}, "offset": 0}]}],
    }),
    "running DDL job of TiKV": (tidb_history.RunningJob.read, JOB),
    "checkpoint row": (
        lambda body: Checkpoint.from_json(body.decode("utf-8", "replace")),
        {"consistent": False, "commitTS": 5, "ts-map": {"primary-ts": 5}, "schema-version": 4, "epoch": 3},
    ),
    "savepoint": (lambda body: savepoint.parse(body.decode("utf-8", "replace")), 5),
    "intent of a DDL": (
        lambda body: Intent.from_json(body.decode("utf-8", "replace")),
        {"commit_ts": 5, "job_id": 6, "query": "q", "before": {"a": None}},
    ),
    "quarantine row": (_quarantine, {"a": "b"}),
    "index of a segment": (SegmentIndex.from_json, {
        "format": 1, "cluster_id": 7, "time_zone": "UTC", "size": 5, "first_commit_ts": 1,
        "last_commit_ts": 2, "transactions": 1, "ddl": 0, "tables": [], "places": [[1, 2]], "closed": True,
    }),
    "pump's status, read by a drainer": (lambda body: pump_status.read_status(body, 1.0), PUMP_STATUS),
    "pump's status, examined": (answers.read_pump, PUMP_STATUS),
    "drainer's status, examined": (answers.read_drainer, DRAINER_STATUS),
    "pump's status, shown": (lambda body: _overview(body, "pumps"), PUMP_STATUS),
    "drainer's status, shown": (lambda body: _overview(body, "drainers"), DRAINER_STATUS),
    "TiDB's info": (answers.read_tidb, {"ip": "10.0.0.1", "status_port": 10080, "binlog_status": "On"}),
    "TiDB's skipping": (answers.read_skipping, {"Skipped": False}),
    "PD's answer": (json_object, {"a": 1}),
}  # fmt: skip

HOSTILE = (
    "1e999", "-1e999", "1" + "0" * 30, "1" + "0" * 400, "-1", "0.5", "NaN", "null", "true", '""', '"\\ud800"',
    '"\\u001b[2J"', '"9"', "[]", "{}", "[" * 3000, "[" * 3000 + "]" * 3000, '{"a":' * 3000,
    "", "\x00", '{"', "'", '{"":null}', "[[]]", "[null]", '{"L":1}',
)  # fmt: skip
RAW = (b"", b"\xff\xfe", b"\x00" * 8, b'"\xff"', b'{"\xed\xa0\x80":1}')


def _places(document: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something may be spoiled: the whole, each value, and each key (by taking it away)."""
    found = [path]
    if isinstance(document, dict):
        for key, value in document.items():
            found += _places(value, (*path, key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            found += _places(value, (*path, number))
    return found


def _spoiled(document: Any, path: tuple[Any, ...], hostile: str) -> bytes:
    mark = "\0mark\0"
    if not path:
        return hostile.encode("utf-8", "surrogatepass")
    copy = json.loads(json.dumps(document))
    owner = copy
    for step in path[:-1]:
        owner = owner[step]
    owner[path[-1]] = mark
    return json.dumps(copy).replace(json.dumps(mark), hostile).encode()


def _without(document: Any, path: tuple[Any, ...]) -> bytes:
    copy = json.loads(json.dumps(document))
    owner = copy
    for step in path[:-1]:
        owner = owner[step]
    del owner[path[-1]]
    return json.dumps(copy).encode()


def _read(reader: Callable[[bytes], object], body: bytes) -> None:
    with contextlib.suppress(BinlogError):
        reader(body)


def test_a_document_with_one_part_spoiled_or_missing() -> None:
    for name in READERS:
        with case(name):
            reader, document = READERS[name]
            for raw in RAW:
                _read(reader, raw)
            for path in _places(document):
                for hostile in HOSTILE:
                    _read(reader, _spoiled(document, path, hostile))
                if path:
                    _read(reader, _without(document, path))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data(), name=st.sampled_from(sorted(READERS)))
def test_a_document_with_random_parts(data: st.DataObject, name: str) -> None:
    reader, document = READERS[name]
    path = data.draw(st.sampled_from(_places(document)))
    _read(reader, _spoiled(document, path, json.dumps(data.draw(_VALUES))))


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("k"), OverflowError("o"), RecursionError("r")])
def test_what_reading_raises_names_the_document(error: Exception) -> None:
    with (
        pytest.raises(Corruption, match=r"entry 5 cannot be read: .*[xkor]"),
        reading("entry 5", hint="look"),
    ):
        raise error


def test_typed_takes_what_has_the_form() -> None:
    assert typed(b'{"a": [1]}', dict[str, list[int]], "it") == {"a": [1]}
    with pytest.raises(Corruption, match="it cannot be read"):
        typed(b'{"a": ["1"]}', dict[str, list[int]], "it")


def test_threads_may_use_a_type_at_once_that_none_has_used_before() -> None:
    """In another process: without `ready` it ends by a signal."""
    program = """
import sys, threading
from typing import Any
import msgspec
from tidb_binlog.foreign_document import ready
sys.setswitchinterval(1e-6)

def structs(number):
    inner = msgspec.defstruct("Inner", [(f"f{each}", int | None, None) for each in range(30)])
    return msgspec.defstruct("Outer", [("a", inner), ("b", list[inner]), ("c", dict[str, inner])])

def use():
    for form in forms:
        barrier.wait()
        msgspec.convert(document, ready(form))

forms, document = [structs(number) for number in range(300)], {"a": {}, "b": [{}], "c": {"x": {}}}
barrier = threading.Barrier(8)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
