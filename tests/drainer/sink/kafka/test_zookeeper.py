"""ZooKeeper: brokers as a server names them, and whatever it answers in their place."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from drainer.sink.kafka.zookeeper import brokers
from tidb_binlog.errors import BinlogError, ConfigError, Unavailable

Node = Callable[[int, str], bytes]
"""(kind of request, path) to what follows the head of the reply; `KeyError` is "no such node"."""


def text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def tree(nodes: dict[str, object], root: str = "") -> Node:
    def answer(kind: int, path: str) -> bytes:
        if kind == 8:
            assert path == f"{root}/brokers/ids"
            return struct.pack(">i", len(nodes)) + b"".join(text(name.encode()) for name in nodes)
        assert kind == 4
        return text(json.dumps(nodes[path.removeprefix(f"{root}/brokers/ids/")]).encode()) + bytes(68)

    return answer


@contextmanager
def zookeeper(answer: Node) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as file:
            first = True
            while head := file.read(4):
                body = file.read(struct.unpack(">i", head)[0])
                if first:
                    assert len(body) == 44
                    reply, first = struct.pack(">iiqi16x", 0, 5000, 1, 16), False
                else:
                    number, kind, size = struct.unpack_from(">iii", body)
                    try:
                        data, error = answer(kind, body[12 : 12 + size].decode()), 0
                    except KeyError:
                        data, error = b"", -101
                    reply = struct.pack(">iqi", number, 9, error) + data
                connection.sendall(text(reply))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join(5)


def test_every_broker_is_named() -> None:
    nodes: dict[str, object] = {
        "2": {"host": "b", "port": 9093},
        "1": {"host": "a", "port": 9092, "endpoints": ["PLAINTEXT://a:9092"]},
        "3": {"host": None, "port": -1, "endpoints": ["SSL://c:9094"]},
        "4": {"host": "::1", "port": 9095},
    }
    with zookeeper(tree(nodes)) as address:
        assert brokers(address) == "a:9092,b:9093,c:9094,[::1]:9095"


def test_a_chroot_stands_before_all_paths() -> None:
    with zookeeper(tree({"1": {"host": "a", "port": 1}}, "/kafka/one")) as address:
        assert brokers(f"{address}/kafka/one/") == "a:1"


def test_the_next_one_is_asked_where_one_does_not_answer(free_port: Callable[[], int]) -> None:
    with zookeeper(tree({"1": {"host": "a", "port": 1}})) as address:
        assert brokers(f"127.0.0.1:{free_port()}, {address}") == "a:1"


def no_brokers(kind: int, path: str) -> bytes:
    raise KeyError(path)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (no_brokers, "it has no /brokers/ids"),
        (tree({}), "no broker is there"),
        (lambda _kind, _path: b"", "requires a buffer"),
        (lambda _kind, _path: struct.pack(">ii", 1, 99), "a reply ends early"),
    ],
    ids=["no Kafka", "empty", "short", "cut"],
)
def test_what_else_it_answers_is_said(answer: Node, said: str) -> None:
    with zookeeper(answer) as address, pytest.raises(Unavailable, match=said) as refused:
        brokers(address)
    assert "kafka-addrs" in refused.value.hint


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(BinlogError) as refused:
        brokers("zoo")
    assert isinstance(refused.value, ConfigError)
