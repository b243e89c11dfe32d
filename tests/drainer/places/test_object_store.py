"""Object store: an object is whole or not there, one creator wins, failures say why and no secret."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drainer.places import object_store
from drainer.places.place import Place
from tests.object_store import SECRET, ObjectStore
from tidb_binlog.errors import ConfigError, Unavailable

pytestmark = pytest.mark.integration


def test_files_are_written_listed_replaced_and_removed(each_s3: ObjectStore) -> None:
    place = Place(each_s3.uri("a/b"))
    assert place.list(missing_ok=True) == []
    with pytest.raises(ConfigError, match="it does not exist"):
        place.list()
    place.make()
    place.put("one", b"first")
    place.put("one", b"second")
    place.put("below/two", b"2")
    place.put("three", b"0123")
    assert [(entry.name, entry.size) for entry in place.list()] == [("one", 6), ("three", 4)]
    assert (place.content("one"), place.read("three", 1, 9), place.has("below")) == (b"second", b"123", True)
    place.delete("one", "nothing")
    assert [entry.name for entry in place.list()] == ["three"]
    place.clear()
    assert each_s3.objects() == {}


def test_one_creator_wins(each_s3: ObjectStore) -> None:
    place = Place(each_s3.uri("a"))
    assert [place.create("owner", b"1"), place.create("owner", b"2")] == [True, False]
    assert place.content("owner") == b"1"


def test_a_stream_that_breaks_off_leaves_what_was_there(each_s3: ObjectStore) -> None:
    place = Place(each_s3.uri("a"))
    place.put("value", b"before")
    with contextlib.suppress(ZeroDivisionError), place.stream("value") as file:
        file.write(b"x" * (20 << 20))
        _ = 1 / 0
    assert each_s3.objects() == {"a/value": b"before"}
    with place.stream("value") as file:
        file.write(b"y" * (20 << 20))  # in parts
    assert place.content("value") == b"y" * (20 << 20)


def test_an_upload_that_breaks_off_leaves_what_was_there(each_s3: ObjectStore) -> None:
    place = Place(each_s3.uri("a"))
    place.put("value", b"before")

    def pieces() -> Iterator[bytes]:
        yield b"z" * (20 << 20)
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError):
        object_store.put(place.uri, place.options, "value", pieces())
    assert place.content("value") == b"before"


def test_options_of_readers_serve_writers(each_s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = each_s3.environ["AWS_ENDPOINT_URL"]
    for name in each_s3.environ:
        if name != "AWS_EC2_METADATA_DISABLED":
            monkeypatch.delenv(name)
    options = {"fs.access_key": "of-the-tests", "fs.secret_key": SECRET, "fs.endpoint_override": endpoint}
    place = Place.of(each_s3.uri("a"), options)
    place.put("one", b"1")
    assert place.content("one") == b"1"
    assert SECRET not in repr(place)


def test_keys_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("[other]\naws_access_key_id = K\naws_secret_access_key = a%b\n")
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"), "AWS_REGION": "eu"}
    assert object_store.s3_config("b", {}, environ) == {"region": "eu"}
    config = object_store.s3_config("b", {"anonymous": "false"}, {**environ, "AWS_PROFILE": "other"})
    assert config == {
        "region": "eu",
        "access_key_id": "K",
        "secret_access_key": "a%b",
        "skip_signature": False,
    }


def test_a_bucket_that_is_not_there(each_s3: ObjectStore) -> None:
    place = Place("s3://no-such-bucket/a")
    for write in (lambda: place.put("x", b""), lambda: place.create("x", b""), lambda: place.list()):
        with pytest.raises(Unavailable, match=r"NoSuchBucket|NO_SUCH_BUCKET") as refused:
            write()
        assert "check the bucket" in refused.value.hint


def test_keys_that_may_not_write(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown ones, and those of a user who may only read."""
    Place(s3.uri("a")).put("x", b"1")
    iam = s3.client("iam")
    iam.create_user(UserName="reader")
    statement = {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="reader", PolicyName="reads", PolicyDocument=policy)
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    secret = key["SecretAccessKey"]
    with s3.asking_for_keys():
        for name, code in ((key["AccessKeyId"], "AccessDenied"), ("unknown", "InvalidAccessKeyId")):
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            place = Place(s3.uri(f"a?region=us-east-1&of={name}"))
            with pytest.raises(Unavailable, match=f"cannot be written: {code}") as refused:
                place.put("x", b"2")
            assert secret not in str(refused.value)
            assert name not in str(refused.value)
    assert s3.objects() == {"a/x": b"1"}
