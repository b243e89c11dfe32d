"""An S3 that tests write to: moto's server as a process, and a bucket of each test."""

from __future__ import annotations

import http.client
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import boto3
import pytest

from binlog_playground.cluster.supervisor import Process
from tests.waiting import until_here
from tidb_binlog.net.port import LOOPBACK, free_ports

SECRET = "s3cr3t-of-the-tests"
REGION = "us-east-1"
_KEYS = {"AWS_ACCESS_KEY_ID": "of-the-tests", "AWS_SECRET_ACCESS_KEY": SECRET}
_START_S = 60.0
_buckets = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """`environ`: what a process needs to reach it."""

    port: int
    bucket: str

    @classmethod
    def empty(cls, port: int) -> Self:
        """A bucket of its own."""
        store = cls(port, f"bucket-{next(_buckets)}")
        store.client().create_bucket(Bucket=store.bucket)
        return store

    @property
    def environ(self) -> dict[str, str]:
        return {
            **_KEYS,
            "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{self.port}",
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def uri(self, path: str) -> str:
        return f"s3://{self.bucket}/{path}"

    def client(self, service: str = "s3") -> Any:
        return boto3.client(
            service,
            endpoint_url=f"http://{LOOPBACK}:{self.port}",
            region_name=REGION,
            aws_access_key_id=_KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=SECRET,
        )

    @contextmanager
    def asking_for_keys(self) -> Iterator[None]:
        """Within it a caller needs a user's key and the rights of that user."""
        self._check_after(b"0")
        try:
            yield
        finally:
            self._check_after(b"inf")

    def _check_after(self, calls: bytes) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=5.0)
        connection.request("POST", "/moto-api/reset-auth", calls)
        assert connection.getresponse().status == 200
        connection.close()

    def objects(self) -> dict[str, bytes]:
        """All that is in the bucket."""
        client = self.client()
        listed = client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {
            entry["Key"]: client.get_object(Bucket=self.bucket, Key=entry["Key"])["Body"].read()
            for entry in listed
        }


@pytest.fixture(scope="session")
def _s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with moto(tmp_path_factory.mktemp("s3")) as port:
        yield port


@contextmanager
def moto(directory: Path) -> Iterator[int]:
    """The port of a server of its own."""
    port = free_ports(1)[0]
    log = directory / "moto.log"
    process = Process("moto", [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)], log)
    process.start()
    try:
        until_here(lambda: _answers(port, process), "moto answers", seconds=_START_S)
        yield port
    finally:
        process.stop()


def _answers(port: int, process: Process) -> bool:
    assert process.is_running, process.tail(5)
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5.0)
    try:
        connection.request("GET", "/moto-api/data.json")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture
def s3(_s3_port: int, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An S3 with an empty bucket, which this process reaches by its environment."""
    store = ObjectStore.empty(_s3_port)
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    return store
