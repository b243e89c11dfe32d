"""Every fuzzer by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.fuzz import binlogs, client, documents, files, http2, rows
from tests.fuzz.campaign import Fuzzer
from tests.fuzz.octets import MUTATIONS, field

_OF_FIELDS: Final = (*MUTATIONS, *[field] * len(MUTATIONS))
_OF_TEXT: Final = (*MUTATIONS, documents.value, documents.value, documents.value, documents.value)

FUZZERS: Final[dict[str, Fuzzer]] = {
    "http2": Fuzzer(http2.connections, http2.into_connection, 7_000, http2.FRAME_MUTATIONS, http2.ENDS),
    "client": Fuzzer(client.replies, client.into_client, 7_000, http2.FRAME_MUTATIONS, client.ENDS),
    "framing": Fuzzer(
        lambda: [*http2.BODIES, *http2.BEGINNINGS],
        http2.into_framing,
        7_000,
        reaches=("status 13, HTTP2", "messages, HTTP1", "status 8"),
    ),
    "hpack": Fuzzer(
        rows.blocks, rows.into_hpack, 8_000, reaches=("4 blocks", "block 3: Comp", "block 1: List")
    ),
    "rows": Fuzzer(rows.rows, rows.into_rows, 6_000, reaches=("written again", "True, RowError")),
    "walk": Fuzzer(binlogs.payloads, binlogs.into_walk, 5_000, _OF_FIELDS, ("rows, in arrays too", "rows")),
    "store": Fuzzer(
        binlogs.payloads, binlogs.into_store, 14_000, _OF_FIELDS, ("stored, type 0", "stored, type 2")
    ),
    "requests": Fuzzer(
        binlogs.requests, binlogs.into_requests, 7_000, _OF_FIELDS, ("0 pay", "4 pay", "Rejected")
    ),
    "relay": Fuzzer(
        files.relay_records, files.into_relay, 8_000, _OF_FIELDS, ("rows", "a DDL", "ConfigError")
    ),
    "archive": Fuzzer(
        files.archive_records, files.into_archive, 7_000, _OF_FIELDS, ("rows", "pb, 34", "relay, 26")
    ),
    "etcd": Fuzzer(documents.values, documents.into_etcd_readers, 5_000, _OF_TEXT, documents.READERS),
    "configuration": Fuzzer(
        documents.configurations,
        documents.into_configuration,
        1_000,
        (*_OF_TEXT, documents.line, documents.line),
        ("taken; taken", "taken; Config", "ConfigError"),
    ),
}


def found(name: str) -> list[bytes]:
    """Inputs that were a fault, each after a line that says which."""
    path = Path(__file__).parent / "corpus" / f"{name}.hex"
    lines = path.read_text().splitlines() if path.exists() else []
    return [bytes.fromhex(line) for line in lines if not line.startswith("#")]
