"""Object store: objects that are written whole, or only where there is none, which pyarrow.fs cannot.

    s3://bucket/path?endpoint_override=HOST:PORT&scheme=http&region=NAME      as pyarrow.fs reads it

Holds   an object appears when all of it is there, and is replaced whole: an upload that breaks off leaves
        what was there. Credentials are those of the options, the environment (`AWS_*`,
        `GOOGLE_APPLICATION_CREDENTIALS`), the file of `AWS_PROFILE`, or the instance's role, in this order
Why     pyarrow's streams have no end but `close`, which shows what was written so far
Tests   tests/drainer/places/test_object_store.py
"""

from __future__ import annotations

import configparser
import datetime
import functools
import itertools
import os
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, Final

from drainer.places.file_system import pyarrow_fs
from tidb_binlog.errors import ConfigError

STORES: Final = frozenset({"s3", "gs", "gcs"})
EXTRA_HINT: Final = "pip install 'tidb-binlog[object-store]'"
_OPTIONS: Final = {
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
    "session_token": "token",
    "region": "region",
    "anonymous": "skip_signature",
    "force_virtual_addressing": "virtual_hosted_style_request",
}
_KEYS: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "token",
}
_RETRIES: Final = {"max_retries": 3, "retry_timeout": datetime.timedelta(seconds=20)}
_PART_BYTES: Final = 8 << 20
Version = Mapping[str, str]
"""What a store calls an object as it was written at one time."""


def put(uri: str, options: Mapping[str, str], name: str, data: Iterable[bytes]) -> None:
    """Store an object whole, in the place of one that is there. Raises `OSError` and obstore's errors.

    Less than a part is one request: not all stores take a part of nothing, and parts are three requests.
    """
    store, prefix = _store(uri, tuple(sorted(options.items())))
    pieces, first, size = iter(data), [], 0
    for piece in pieces:
        first.append(piece)
        size += len(piece)
        if size >= _PART_BYTES:
            _obstore().put(store, prefix + name, itertools.chain(first, pieces), chunk_size=_PART_BYTES)
            return
    _obstore().put(store, prefix + name, b"".join(first), use_multipart=False)


def create(uri: str, options: Mapping[str, str], name: str, data: bytes) -> bool:
    """Store an object where there is none; whether it did. Raises as `put`."""
    store, prefix = _store(uri, tuple(sorted(options.items())))
    try:
        _obstore().put(store, prefix + name, data, mode="create")
    except _obstore().exceptions.AlreadyExistsError:
        return False
    return True


def exchange(
    uri: str, options: Mapping[str, str], name: str, data: bytes, version: Version
) -> Version | None:
    """Store an object in the place of the one of that version, {} for none; None if another one is there.
    Raises as `put`."""
    store, prefix = _store(uri, tuple(sorted(options.items())))
    exceptions = _obstore().exceptions
    try:
        return _version(_obstore().put(store, prefix + name, data, mode=dict(version) or "create"))
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError) as error:
        if not version and isinstance(error, FileNotFoundError):
            raise  # there is no such bucket
        return None


def version_of(uri: str, options: Mapping[str, str], name: str) -> Version:
    """Of the object that is there, {} where there is none. Raises as `put`."""
    store, prefix = _store(uri, tuple(sorted(options.items())))
    try:
        return _version(_obstore().head(store, prefix + name))
    except FileNotFoundError:
        return {}


def _version(facts: Mapping[str, Any]) -> Version:
    return {key: facts[key] for key in ("e_tag", "version") if facts.get(key)}


def delete(uri: str, options: Mapping[str, str], names: Iterable[str]) -> None:
    """Remove objects; those that are not there are passed over. Raises as `put`."""
    store, prefix = _store(uri, tuple(sorted(options.items())))
    try:
        _obstore().delete(store, [prefix + name for name in names])
    except FileNotFoundError:
        return


def errors() -> tuple[type[Exception], ...]:
    """What may be raised of reading and writing."""
    return OSError, _obstore().exceptions.BaseError


def _obstore() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
    return obstore


@functools.lru_cache(maxsize=8)
def _store(uri: str, options: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """obstore's store of the bucket, and what names in it begin with."""
    stores = _obstore().store
    parts = urllib.parse.urlsplit(uri)
    bucket = parts.netloc.rpartition("@")[2]
    prefix = f"{urllib.parse.unquote(parts.path).strip('/')}/".lstrip("/")
    if parts.scheme != "s3":
        return stores.GCSStore(bucket, retry_config=_RETRIES), prefix
    given = {**dict(urllib.parse.parse_qsl(parts.query)), **dict(options)}
    return stores.S3Store(bucket, config=s3_config(bucket, given, os.environ), retry_config=_RETRIES), prefix


def s3_config(bucket: str, given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """obstore's configuration for what pyarrow's file system is given."""
    config: dict[str, Any] = {
        _OPTIONS[name]: value == "true" if value in ("true", "false") else value
        for name, value in given.items()
        if name in _OPTIONS
    }
    endpoint = given.get("endpoint_override", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"{given.get('scheme', 'https')}://{endpoint}"
    endpoint = endpoint or environ.get("AWS_ENDPOINT_URL_S3", "") or environ.get("AWS_ENDPOINT_URL", "")
    if endpoint:
        config |= {"endpoint": endpoint, "allow_http": endpoint.startswith("http://")}
    if "region" not in config:
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        config["region"] = region or ("us-east-1" if endpoint else pyarrow_fs().resolve_s3_region(bucket))
    if "access_key_id" not in config and "AWS_ACCESS_KEY_ID" not in environ:
        config |= _of_file(environ)
    return config


def _of_file(environ: Mapping[str, str]) -> dict[str, str]:
    """What the clouds' own tools have stored, which obstore does not read."""
    path = environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")
    reader = configparser.ConfigParser(interpolation=None)
    try:
        reader.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        raise ConfigError(f"{path} cannot be read", hint="it has lines KEY = VALUE below [PROFILE]") from None
    profile = environ.get("AWS_PROFILE", "default")
    return {name: reader.get(profile, key) for key, name in _KEYS.items() if reader.has_option(profile, key)}
