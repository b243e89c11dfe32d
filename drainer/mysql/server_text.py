"""Server text: octets that a downstream sends as text, and those that it is sent, whatever they are.

Out    a codec by which what is no UTF-8 reads as `\\xff`, and octets of a statement go out as they are
Why    servers print some definitions as they were given (the default of a BINARY column in SHOW CREATE TABLE,
       a CHECK). One such octet must not fail the reader, and what is read must be fit to be logged, stored
       and compared

Equal octets read as equal text, so shapes may be compared.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final

AS_SENT: Final = "utf_8_as_sent"
"""The encoding of a connection on which nothing that is read can fail to decode."""
_UNCLEAR: Final = re.compile("[?\udc80-\udcff\ufffd]+")


def _encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
    return text.encode("utf-8", "surrogateescape"), len(text)


def _decode(data: Any, errors: str = "strict") -> tuple[str, int]:
    return bytes(data).decode("utf-8", "backslashreplace"), len(data)


def _find(name: str) -> codecs.CodecInfo | None:
    return codecs.CodecInfo(_encode, _decode, name=AS_SENT) if name == AS_SENT else None


codecs.register(_find)


def as_listed(statement: str, length: int) -> str:
    """The beginning of a statement as lists of processes can be compared: they show `?` for other octets."""
    return _UNCLEAR.sub("?", statement.strip())[:length]
