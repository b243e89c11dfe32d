"""Server text: octets that a downstream sends as text, and those that it is sent, whatever they are.

In     a connection of PyMySQL, whose text columns and names would be decoded as strict UTF-8
Out    the same connection; what is no UTF-8 reads as `\\xff`, and octets of a statement go out as they are
Why    servers print some definitions as they were given (the default of a BINARY column in SHOW CREATE TABLE,
       a CHECK). One such octet must not end whoever reads it, and what is read must be fit to be logged,
       stored and compared

Equal octets read as equal text, so shapes may be compared.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final

import pymysql

_CODEC: Final = "utf_8_as_sent"
_UNCLEAR: Final = re.compile("[?\udc80-\udcff\ufffd]+")


def _encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
    return text.encode("utf-8", "surrogateescape"), len(text)


def _decode(data: Any, errors: str = "strict") -> tuple[str, int]:
    return bytes(data).decode("utf-8", "backslashreplace"), len(data)


def _find(name: str) -> codecs.CodecInfo | None:
    return codecs.CodecInfo(_encode, _decode, name=_CODEC) if name == _CODEC else None


codecs.register(_find)


def read_as_sent(connection: pymysql.Connection[Any]) -> None:
    """From now on nothing that this connection reads can fail to decode."""
    connection.encoding = _CODEC


def as_listed(statement: str, length: int) -> str:
    """The beginning of a statement as lists of processes can be compared: they show `?` for other octets."""
    return _UNCLEAR.sub("?", statement.strip())[:length]
