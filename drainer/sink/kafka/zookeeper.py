"""ZooKeeper: the brokers of a Kafka that is known by its ZooKeepers only.

In     "host:port,host:port/chroot", as the Go drainer takes it
Out    the brokers that are there, "host:port,host:port"
Why    three requests of ZooKeeper's protocol (connect, getChildren, getData) are all that is asked of it,
       once at a start; clients of it keep sessions, which nobody needs here
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Final

from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import split_address

TIMEOUT_S: Final = 5.0
REPLY_BYTES_MAX: Final = 4 << 20
_GET_DATA: Final = 4
_GET_CHILDREN: Final = 8
_NO_NODE: Final = -101
_IDS: Final = "/brokers/ids"


def brokers(addresses: str) -> str:
    """Raises `ConfigError`, `Unavailable`."""
    hosts, slash, path = addresses.partition("/")
    reasons = []
    for address in hosts.split(","):
        host, port = split_address("syncer.to.zookeeper-addrs", address.strip())
        try:
            found = _ask(host, port, slash + path.rstrip("/") if path else "")
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            reasons.append(f"{address.strip()}: {error}")
            continue
        if found:
            return ",".join(found)
        reasons.append(f"{address.strip()}: no broker is there")
    raise Unavailable(
        f"ZooKeeper names no Kafka broker: {'; '.join(reasons)}",
        hint="check zookeeper-addrs; Kafka from 4.0 on has no ZooKeeper: set kafka-addrs instead",
    )


def _ask(host: str, port: int, root: str) -> list[str]:
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        # protocol version, last zxid seen, session timeout, session id, password of 16 bytes
        _send(connection, struct.pack(">iqiqi16x", 0, 0, int(TIMEOUT_S * 1000), 0, 16))
        _receive(connection)
        names = _children(_call(connection, 1, _GET_CHILDREN, root + _IDS))
        found = []
        for number, name in enumerate(sorted(names), 2):
            data = _text(_call(connection, number, _GET_DATA, f"{root}{_IDS}/{name}"), 0)[0]
            found += _addresses(json.loads(data))
        return found


def _addresses(broker: dict[str, object]) -> list[str]:
    """In clear, as the Go drainer speaks; a broker without such a listener is passed over."""
    host, port = broker.get("host"), broker.get("port")
    if isinstance(host, str) and isinstance(port, int) and port > 0:
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    endpoints = broker.get("endpoints")
    texts = endpoints if isinstance(endpoints, list) else []
    return [str(text).rpartition("//")[2] for text in texts][:1]


def _call(connection: socket.socket, number: int, kind: int, path: str) -> bytes:
    name = path.encode()
    _send(connection, struct.pack(">iii", number, kind, len(name)) + name + b"\0")
    reply = _receive(connection)
    _, _, error = struct.unpack_from(">iqi", reply)
    if error == _NO_NODE:
        raise ValueError(f"it has no {path}")
    if error:
        raise ValueError(f"error {error} for {path}")
    return reply[16:]


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(struct.pack(">i", len(message)) + message)


def _receive(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 <= size <= REPLY_BYTES_MAX:
        raise ValueError(f"a reply of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        chunk = connection.recv(size - len(found))
        if not chunk:
            raise ConnectionError("the connection ended")
        found += chunk
    return bytes(found)


def _text(reply: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">i", reply, at)
    size = max(size, 0)
    if at + 4 + size > len(reply):
        raise ValueError("a reply ends early")
    return reply[at + 4 : at + 4 + size], at + 4 + size


def _children(reply: bytes) -> list[str]:
    (count,) = struct.unpack_from(">i", reply)
    found, at = [], 4
    for _ in range(count):
        name, at = _text(reply, at)
        found.append(name.decode())
    return found
