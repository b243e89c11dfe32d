"""Text for columns whose character set holds fewer characters than upstream's.

TiDB keeps any text in a latin1 column; MariaDB and MySQL refuse what latin1 cannot show. Such a value is
stored as its UTF-8 bytes where every byte is legal and they fit (latin1): nothing is lost, and
`CONVERT(CAST(c AS BINARY) USING utf8mb4)` shows it. Two texts stay two texts, also in a key, unless one is
what the other's bytes are in latin1 (`日` and `æ—¥`): such bytes are taken for the former. Elsewhere each
character that does not exist becomes a question mark. Both are limits of the downstream: the caller reports
them. A key never gets a question mark for want of length: two keys would be one row.
"""

from __future__ import annotations

from typing import Final

from drainer.mysql.literal.quoting import binary_literal, quote_bytes, text_is, text_literal
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass

_HEX_MAX: Final = 256
# MySQL's latin1 is cp1252 with the five bytes that it leaves out.
_CODECS: Final = {"latin1": "cp1252", "ascii": "ascii", "gbk": "gbk", "gb2312": "gb2312", "big5": "big5"}
_EVERY_BYTE: Final = "latin1"
_BYTE_OF: Final = {
    raw.decode("cp1252", "ignore") or raw.decode("latin1"): number
    for number in range(256)
    for raw in (bytes((number,)),)
}
_THREE_BYTES: Final = frozenset({"utf8", "utf8mb3"})
_BMP_MAX: Final = "\uffff"


@dataclass(frozen=True, slots=True)
class Charset:
    """Character set of a downstream column; `length` is its limit in characters, 0: none.

    `key`: what the column is called, if it is one of those that identify a row; then `length` is that of its
    part of the key.
    """

    name: str
    length: int = 0
    key: str = ""

    @staticmethod
    def is_narrow(name: str) -> bool:
        """Whether text exists that utf8mb4 has and this character set has not."""
        return name in _CODECS or name in _THREE_BYTES

    def has(self, text: str) -> bool:
        if self.name in _THREE_BYTES:
            return max(text) <= _BMP_MAX
        try:
            text.encode(_CODECS[self.name])
        except UnicodeEncodeError:
            return False
        return True

    @property
    def keeps_bytes(self) -> bool:
        """Every string of bytes is legal, so that no text need be changed."""
        return self.name == _EVERY_BYTE

    def holds(self, raw: bytes) -> bool:
        """Whether the value is stored as the text that it is. Bytes that are no UTF-8 are no text."""
        if raw.isascii():
            return True
        text = _text(raw)
        return text is None or self.has(text)

    def literal(self, raw: bytes) -> bytes:
        """What to store, and what to compare with. Raises `DownstreamError` for a key that does not fit."""
        if raw.isascii():
            return text_literal(raw)
        text = _text(raw)
        if text is not None and self.has(text):
            return text_literal(raw)
        if self.keeps_bytes and (text is None or not self.length or len(raw) <= self.length):
            return self._bytes(raw)
        if self.key and self.keeps_bytes:
            raise DownstreamError(
                f"a key in {self.key} does not fit: it has {self.length} {self.name} characters, text of "
                f"{len(raw)} bytes that {self.name} has not",
                hint="make it longer downstream, four times as long as upstream, or the column utf8mb4",
            )
        return binary_literal(raw) if text is None else text_literal(self.with_marks(text).encode())

    def meant(self, shown: bytes) -> bytes:
        """What `literal` was given, of what a column of this character set shows."""
        if shown.isascii() or not self.keeps_bytes:
            return shown
        raw = bytes(_BYTE_OF[character] for character in shown.decode())
        return shown if _text(raw) is None or self.holds(raw) else raw

    def predicate(self, name: bytes, raw: bytes) -> bytes:
        """Term that is true for exactly this value in the column `name` (quoted)."""
        text = _text(raw)
        if text is not None and (self.has(text) if not raw.isascii() else True):
            return text_is(name, text_literal(raw))
        return b"BINARY %b<=>BINARY %b" % (name, self.literal(raw))

    def _bytes(self, raw: bytes) -> bytes:
        if len(raw) <= _HEX_MAX:
            return b"_%b x'%b'" % (self.name.encode(), raw.hex().encode())
        return b"_%b'%b'" % (self.name.encode(), quote_bytes(raw))

    def with_marks(self, text: str) -> str:
        """With a question mark for each character that does not exist."""
        if self.name in _THREE_BYTES:
            return "".join(character if character <= _BMP_MAX else "?" for character in text)
        codec = _CODECS[self.name]
        return text.encode(codec, "replace").decode(codec)


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
