"""An S3 that tests write to: moto's server as a process, and a bucket of each test.

A second server, of other authors in another language, is there for the same: Go makes it of its module, once,
below build; where that cannot be done, tests with it are skipped and say so.
"""

from __future__ import annotations

import http.client
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import boto3
import pytest

from binlog_playground.cluster.supervisor import Process
from tests.spark.support import spark_versions
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports

SECRET = "s3cr3t-of-the-tests"
REGION = "us-east-1"
_KEYS = {"AWS_ACCESS_KEY_ID": "of-the-tests", "AWS_SECRET_ACCESS_KEY": SECRET}
_MAKING_S = 250.0
_GOFAKES3 = "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0"
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
        """Within it a caller needs a user's key and the rights of that user. Of moto alone."""
        self._check_after(b"0")
        try:
            yield
        finally:
            self._check_after(b"inf")

    def _check_after(self, calls: bytes) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=PATIENCE_S)
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
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p"]
    with _serving("moto", command, "", "/moto-api/data.json", directory) as port:
        yield port


@contextmanager
def _serving(name: str, command: Sequence[str], host: str, page: str, directory: Path) -> Iterator[int]:
    """`command`, up to the port; `host` stands before that."""
    port = free_ports(1)[0]
    process = Process(name, [*command, f"{host}{port}"], directory / f"{name}.log")
    process.start()
    try:
        until_here(lambda: _answers(port, page, process), f"{name} answers")
        yield port
    finally:
        process.stop()


def _answers(port: int, page: str, process: Process) -> bool:
    assert process.is_running, process.tail(5)
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PATIENCE_S)
    try:
        connection.request("GET", page)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _reached(port: int, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    store = ObjectStore.empty(port)
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    return store


@pytest.fixture
def s3(_s3_port: int, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An S3 with an empty bucket, which this process reaches by its environment."""
    return _reached(_s3_port, monkeypatch)


@pytest.fixture(scope="session")
def _gofakes3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    directory = spark_versions.or_skip(lambda: spark_versions.once("gofakes3", _make_gofakes3))
    command = [str(directory / "gofakes3"), "-backend", "memory", "-host"]
    with _serving("gofakes3", command, f"{LOOPBACK}:", "/", tmp_path_factory.mktemp("gofakes3")) as port:
        yield port


def _make_gofakes3(target: Path) -> None:
    if shutil.which("go") is None:
        raise Unavailable("go, which makes gofakes3, is not on this machine")
    made = subprocess.run(
        ["go", "install", _GOFAKES3],
        env={**os.environ, "GOBIN": str(target)},
        capture_output=True,
        text=True,
        timeout=_MAKING_S,
        check=False,
    )
    if made.returncode:
        raise Unavailable(f"gofakes3 cannot be made: {made.stderr.strip().splitlines()[-1]}")


@pytest.fixture(params=["moto", "gofakes3"])
def each_s3(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """As `s3`, of each server in turn."""
    port = request.getfixturevalue("_s3_port" if request.param == "moto" else "_gofakes3_port")
    return _reached(port, monkeypatch)
