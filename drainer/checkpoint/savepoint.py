"""Savepoint: the checkpoint as a file, for sinks that cannot store a row; and whose directory it is.

    savepoint   TOML as a Go drainer writes it: consistent, commitTS, schema-version; a checksum as a comment
    .cluster    cluster id, decimal text: beside it, since a Go drainer rewrites the savepoint whole
    snapshot    how far the rows that come before the stream are stored, while they are not all
    .begin      commit_ts, decimal text: where the stream began, until there is a savepoint

Holds  a savepoint is replaced whole and durably, which a Go drainer's is not. Another cluster's directory
       is refused; one without `.cluster` is a Go drainer's and is adopted
       A start that stored nothing, since its sink failed, has begun all the same: the next one goes on there
Never  guesses: a value of a wrong type is refused, as in the row (`value`)
"""

from __future__ import annotations

import contextlib
import json
import os
import tomllib
from typing import Final

from drainer.checkpoint.value import Checkpoint
from tidb_binlog import checked
from tidb_binlog.errors import ConfigError, Corruption, ForeignDirectory
from tidb_binlog.filesystem import read_file, replace_file, unusable
from tidb_binlog.tso import Ts

NAME: Final = "savepoint"
BEGIN_NAME: Final = ".begin"
SNAPSHOT_NAME: Final = "snapshot"
_MODE: Final = 0o644


def render(checkpoint: Checkpoint) -> str:
    """The file's text. What a Go drainer does not know is left out: this form has no keys for it."""
    return checked.text(
        f"consistent = {'true' if checkpoint.consistent else 'false'}\n"
        f"commitTS = {checkpoint.commit_ts}\n"
        f"schema-version = {checkpoint.schema_version}\n"
    )


def parse(text: str) -> Checkpoint:
    """Raises `Corruption`. Missing keys read as zero, unknown ones are ignored."""
    try:
        document = tomllib.loads(checked.read_text(text))
        return Checkpoint.from_json(json.dumps(document, default=str))
    except tomllib.TOMLDecodeError as error:
        reason = f"it is not TOML: {error}"
    except Corruption as error:
        reason = error.message
    except ValueError as error:
        reason = f"{error}; if it was corrected by hand, the line with the checksum has to go"
    raise Corruption(f"savepoint cannot be read: {reason}", hint="restore or correct the file")


class Savepoint:
    """The file of one data directory."""

    def __init__(self, data_dir: str) -> None:
        self._path = os.path.join(data_dir, NAME)
        self._begin_path = os.path.join(data_dir, BEGIN_NAME)
        self._has_begin = True  # perhaps

    @property
    def path(self) -> str:
        """Of the file."""
        return self._path

    @property
    def has_snapshot(self) -> bool:
        """Whether rows that come before the stream are not all stored."""
        return os.path.exists(os.path.join(os.path.dirname(self._path), SNAPSHOT_NAME))

    @property
    def is_new(self) -> bool:
        """Whether no drainer has begun with this data directory, as far as files tell."""
        return not (self.has_snapshot or os.path.exists(self._path) or os.path.exists(self._begin_path))

    def load(self) -> Checkpoint | None:
        """None if there is no file. Raises `Corruption`, `ConfigError` if it cannot be read."""
        text = _read(self._path)
        return None if text is None else parse(text)

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable when this returns. Raises `OSError`."""
        replace_file(self._path, render(checkpoint).encode(), _MODE)
        if self._has_begin:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._begin_path)
            self._has_begin = False

    def close(self) -> None:
        """What is open for it; a later `load` or `save` opens it again."""

    def begin(self, now_ts: Ts) -> int:
        """Where a stream begins that has no savepoint: where an earlier start began, or now, durably noted.

        Raises `Corruption`, `ConfigError`, `OSError`.
        """
        if _read(self._path) is not None:
            return now_ts
        text = _read(self._begin_path)
        if text is None:
            replace_file(self._begin_path, checked.text(f"{now_ts}\n").encode())
            self._has_begin = True
            return now_ts
        try:
            return int(checked.read_text(text))
        except ValueError:
            raise Corruption(
                f"{self._begin_path} holds no timestamp", hint="correct it, or remove it"
            ) from None


def adopt_cluster(data_dir: str, cluster_id: int) -> None:
    """Remember whose data directory it is; `ForeignDirectory` if it is another cluster's."""
    path = os.path.join(data_dir, ".cluster")
    stored = _read(path)
    if not stored:
        replace_file(path, str(cluster_id).encode())
    elif stored.strip() != str(cluster_id):
        raise ForeignDirectory(
            f"data directory {data_dir} belongs to cluster {stored.strip()[:40]},"
            f" but the upstream is cluster {cluster_id}",
            hint="check pd-urls, or use an empty data-dir for this cluster",
        )


def _read(path: str) -> str | None:
    try:
        return read_file(path).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(f"{path} cannot be read", error, "let this user read it") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="repair or remove it") from None
