"""Claim store: a value is whole when its URI is given out, in a directory and in an object store."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from drainer.places import place
from drainer.sink.kafka.claim_store import ClaimStore
from tests.object_store import ObjectStore
from tidb_binlog.errors import ConfigError, DownstreamError


def read(uri: str) -> bytes:
    return Path(url2pathname(urlsplit(uri).path)).read_bytes()


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_value_in_pieces(tmp_path: Path, form: str) -> None:
    directory = tmp_path / ("values here" if form == "{}" else "values")
    if form != "{}":
        directory.mkdir()
    store = ClaimStore(form.format(directory))
    for _ in range(2):  # what comes again after a crash is the same
        claim = store.open("12-3-topic-0")
        for piece in (b"one", b"", b"two" * 100_000):
            claim.write(piece)
        uri = claim.close()
        assert read(uri) == b"one" + b"two" * 100_000
    assert [path.name for path in directory.iterdir()] == ["12-3-topic-0"]


def test_a_value_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def fsync(_descriptor: int) -> None:
        steps.append("synced" if not (tmp_path / "a").exists() else "too late")

    store = ClaimStore(str(tmp_path))
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(
        place, "sync_directory", lambda _path: steps.append(f"named {(tmp_path / 'a').exists()}")
    )
    claim = store.open("a")
    claim.write(b"x")
    claim.close()
    assert steps == ["synced", "named True"]


def test_what_is_no_place_for_values_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be written"):
        ClaimStore(str(tmp_path / "file" / "below"))
    with pytest.raises(ConfigError, match="nowhere is no file system"):
        ClaimStore("nowhere://bucket/x")


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_value_that_cannot_be_stored_stops_before_its_message(tmp_path: Path, form: str) -> None:
    directory = tmp_path / "values"
    directory.mkdir()
    store = ClaimStore(form.format(directory))
    directory.rmdir()
    with pytest.raises(DownstreamError, match="cannot be stored") as refused:
        store.open("a").close()
    assert "no message was sent" in refused.value.hint


@pytest.mark.integration
def test_a_value_in_an_object_store(s3: ObjectStore) -> None:
    store = ClaimStore(s3.uri("values?region=us-east-1"))
    claim = store.open("a")
    claim.write(b"one")
    assert s3.objects() == {}
    assert claim.close() == s3.uri("values/a")
    assert s3.objects() == {"values/a": b"one"}
    with pytest.raises(DownstreamError, match="NoSuchBucket"):
        ClaimStore("s3://no-such-bucket").open("a").close()
