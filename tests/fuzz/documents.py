"""Documents: what others may write into etcd, and configuration files."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from drainer.config.options import DrainerConfig
from pump.config import PumpConfig
from tests.drainer.support import recorded
from tests.fuzz.campaign import ending
from tests.fuzz.octets import any_of, below
from tidb_binlog import ddl_job
from tidb_binlog.cluster.node import READER, NodeStatus
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.process import process_identity
from tidb_binlog.process.process_identity import ProcessIdentity
from tidb_binlog.table_info import TableInfo
from tidb_binlog.upstream.standalone import layout
from tidb_binlog.upstream.standalone.layout import Open, Prepared, decode_entry, encode_entry
from tidb_binlog.upstream_port import Committed, RolledBack

ROOT: Final = Path(__file__).parents[2]
KEY: Final = layout.txn_key(7)
NUMBERS: Final = (
    b"0",
    b"-1",
    b"1e999",
    b"1.5",
    b"9" * 30,
    b"null",
    b'""',
    b"[]",
    b"{}",
    b"true",
    b"nan",
    b"0x7f",
)
DEEP: Final = (b"[" * 20_000, b'{"a":' * 20_000)


def values() -> list[bytes]:
    status = NodeStatus("pump:8250", "10.0.0.1:8250", "online", 7, 9, label=READER)
    entries = (Open(1, 2), Prepared(1, 2, 3, "db"), Committed(5), RolledBack())
    jobs = [job for name in ("ddl", "ddl-swap") for job in recorded.jobs(name)]
    return [
        status.to_json(),
        process_identity.current("token").to_json(),
        *map(encode_entry, entries),
        b"449000000000000000",
        *random.Random(1).sample(jobs, 12),
        *DEEP,
    ]


def value(octets: bytearray, rng: random.Random) -> None:
    """Another value in the place of a number or a text."""
    places = [*re.finditer(rb'-?\d+|"[^"]*"', octets)]
    if places:
        start, stop = any_of(rng, places).span()
        octets[start:stop] = any_of(rng, NUMBERS)


def line(octets: bytearray, rng: random.Random) -> None:
    """A line twice, elsewhere, or not at all."""
    lines = octets.splitlines(keepends=True)
    moved = lines.pop(below(rng, len(lines)))
    for _ in range(below(rng, 3)):
        lines.insert(below(rng, len(lines) + 1), moved)
    octets[:] = b"".join(lines)


def _status(octets: bytes) -> None:
    status = NodeStatus.from_json(octets, where="/a/key")
    assert NodeStatus.from_json(status.to_json()) == status
    assert isinstance(status.labels, dict)
    assert status.is_reader in (True, False)


def _identity(octets: bytes) -> None:
    identity = ProcessIdentity.from_json(octets)
    if identity is None:
        raise Corruption("none")
    assert ProcessIdentity.from_json(identity.to_json()) == identity


def _entry(octets: bytes) -> None:
    entry = decode_entry(KEY, octets)
    assert decode_entry(KEY, encode_entry(entry)) == entry


def _job(octets: bytes) -> None:
    head = ddl_job.head(octets)
    job = ddl_job.parse(octets)
    assert head is None or (head.id, head.action, head.finished_ts) == (job.id, job.action, job.finished_ts)
    for document in (job.table_info, *job.table_infos):
        if document is not None:
            info = TableInfo.from_json(document)
            again = TableInfo.from_json(info.to_json())
            assert again == TableInfo.from_json(again.to_json())


CONFIGURATION_BYTES: Final = 4 << 10
"""tomllib takes the square of a key's parts, and each unknown key is looked for among all lines and keys: who
writes such a file waits for himself."""

READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "status": _status,
    "identity": _identity,
    "entry": _entry,
    "number": partial(layout.decode_number, KEY),
    "job": _job,
}


def into_etcd_readers(octets: bytes, rng: random.Random) -> str:
    """Whoever reads a key may find any of them there."""
    taken, refused = [], []
    for name, read in READERS.items():
        try:
            read(octets)
            taken.append(name)
        except Corruption as error:
            refused.append(ending(error)[-30:])
    return ", ".join(taken + refused[:3])


def configurations() -> list[bytes]:
    go_files = [path.read_bytes() for path in ROOT.glob("tests/**/*.toml")]
    return [
        *((ROOT / "deploy" / f"{name}.toml").read_bytes() for name in ("pump", "drainer")),
        *go_files,
        *DEEP,
    ]


def refusal(load: Callable[[], Any]) -> ConfigError | None:
    try:
        load()
    except ConfigError as error:
        return error
    return None


def into_configuration(octets: bytes, rng: random.Random) -> str:
    """Read by both programs. What is wrong is an error that says what to do, and `examine` finds it, too."""
    ends = []
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(octets[:CONFIGURATION_BYTES])
        file.flush()
        for cls in (PumpConfig, DrainerConfig):
            said = {"program": "program", "env_prefix": "FUZZ"}
            error = refusal(partial(loading.load, cls, [f"-config={file.name}"], {}, **said))
            assert error is None or error.hint
            problems: list[ConfigError] = []
            unread = refusal(lambda: problems.extend(loading.examine(cls, file.name, {}, **said)[0]))  # noqa: B023
            assert bool(problems or unread) == bool(error), (problems, error)
            ends.append(ending(error, file.name)[:60] if error else "taken")
    return "; ".join(ends)
