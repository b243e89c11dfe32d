"""Secret file: a password, a key to sign with or a salt, alone in a file that only its readers may read.

Tests  tests/drainer/config/test_password.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.errors import ConfigError

BYTES_MAX: Final = 4096


def read(key: str, path: str, what: str = "password") -> str:
    """The first line of a file, which holds `what` alone. Raises `ConfigError`."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"cannot read {key} {path}: {why}", hint="check the path and who may read it"
        ) from None
    line, _, rest = text.partition("\n")
    if len(text) > BYTES_MAX or rest.strip():
        raise ConfigError(
            f"{key} {path} holds more than one line", hint=f"it holds the {what} and nothing else"
        )
    return line.rstrip("\r")
