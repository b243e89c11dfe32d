"""Locations: local and through pyarrow read alike; no credential is in any text."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyarrow import fs

from drainer.places import file_system
from drainer.places.place import Place
from drainer.reading.archive.files.segments import survey
from drainer.reading.archive.files.selection import Selection
from tests.drainer.reading.archive.support import corpus
from tests.drainer.reading.archive.support.corpus import Values
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import BinlogError, ConfigError

SECRET = "s3cr3t-key"


def test_a_file_system_of_pyarrow_reads_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An in-process one: what is in between is pyarrow's."""
    local = corpus.our_archive(items("basic"), tmp_path / "a", 4 << 10)
    filesystem = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(
        file_system, "file_system", lambda uri, options: (filesystem, uri.partition("://")[2])
    )
    remote = Place("mem://a")
    assert survey(remote).problems == ()
    assert [entry.name for entry in remote.list()] == [entry.name for entry in local.list()]
    found = list(Values().of_records(corpus.records(remote)))
    assert found == list(Values().of_records(corpus.records(local)))
    assert remote.content("nothing") is None
    assert (remote.has("index"), remote.has("value")) == (True, False)
    assert remote.read(remote.list()[0].name, 4, 8) == local.read(local.list()[0].name, 4, 8)
    with pytest.raises(ConfigError, match="no directory mem://b to read from"):
        Place("mem://b").list()


@pytest.mark.parametrize(
    "location",
    [
        Place(f"s3://user:{SECRET}@bucket/path", {"region": "none"}),
        Place(f"s3://bucket/path?secret_key={SECRET}"),
        Place("s3://bucket/path", {"secret_key": SECRET, "no_such": "argument"}),
        Place("nowhere://bucket/path", {"secret_key": SECRET}),
    ],
)
def test_no_credential_is_shown(location: Place) -> None:
    assert SECRET not in repr(location) + str(location) + location.shown + location.path_of("x")
    assert pickle.loads(pickle.dumps(location)) == location
    if "no_such" in location.options or location.uri.startswith("nowhere"):
        with pytest.raises(BinlogError) as raised:
            location.list()
        assert SECRET not in str(raised.value)
        assert "fs.secret_key" in str(raised.value)


def test_options_with_the_prefix_are_those_of_the_file_system() -> None:
    assert Place.of("s3://b", {"fs.region": "eu", "start": "5"}).options == {"region": "eu"}


def test_a_local_directory_takes_no_options_of_a_file_system(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"options given \(fs\.region\)"):
        Place(str(tmp_path), {"region": "eu"}).filesystem()


def test_a_file_uri_is_a_local_path(tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    local = corpus.our_archive(items("basic"), directory, 1 << 20)
    named = Place(directory.as_uri())
    assert named.shown == str(directory)
    assert survey(named).plan(Selection()) == survey(local).plan(Selection())
    assert named.under("index").list()
