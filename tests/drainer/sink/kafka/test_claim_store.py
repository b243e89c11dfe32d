"""Claim store: a value is whole when its URI is given out, in a directory and through pyarrow.fs."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from drainer.sink.kafka import claim_store
from drainer.sink.kafka.claim_store import open_store
from tidb_binlog.errors import ConfigError, DownstreamError


def read(uri: str) -> bytes:
    return Path(url2pathname(urlsplit(uri).path)).read_bytes()


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_value_in_pieces(tmp_path: Path, form: str) -> None:
    directory = tmp_path / ("values here" if form == "{}" else "values")
    if form != "{}":
        directory.mkdir()
    store = open_store(form.format(directory))
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

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(
        claim_store, "sync_directory", lambda _path: steps.append(f"named {(tmp_path / 'a').exists()}")
    )
    claim = open_store(str(tmp_path)).open("a")
    claim.write(b"x")
    claim.close()
    assert steps == ["synced", "named True"]


def test_what_is_no_place_for_values_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be made"):
        open_store(str(tmp_path / "file" / "below"))
    with pytest.raises(ConfigError, match="cannot be used"):
        open_store("nowhere://bucket/x")


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_value_that_cannot_be_stored_stops_before_its_message(tmp_path: Path, form: str) -> None:
    directory = tmp_path / "values"
    directory.mkdir()
    store = open_store(form.format(directory))
    directory.rmdir()
    with pytest.raises(DownstreamError, match="cannot be stored") as refused:
        store.open("a").close()
    assert "no message was sent" in refused.value.hint
