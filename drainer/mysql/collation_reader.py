"""Collation reader: the weights of characters, asked of the server once for each collation.

Out    `Collation`, or None if it cannot be told which texts are equal by their characters
Why    one long text is asked for at a time, its characters parted by one whose weight no other has: 130,000
       characters take a tenth of a second

Tests  tests/drainer/mysql/literal/test_collation_mariadb.py

Blocking. Raises `SessionError` if the server is away.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from drainer.mysql.connection import Connection
from drainer.mysql.errors import StatementRefused
from drainer.mysql.literal.collation import Collation, asked, is_per_character
from drainer.mysql.literal.quoting import string_literal
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.observe import log

logger = log.get("drainer.collation_reader")

_BATCH: Final = 16384
_PART: Final = "\u4e02"  # an ideograph of which no variant, radical or compatible double exists
_LEVELS_END: Final = b"\0\0"


def read_collation(connection: Connection, name: str) -> Collation | None:
    """What the server says of it, if anything; ends the connection's read view."""
    if not is_per_character(name):
        return None
    connection.rollback()
    try:
        return Collation(name, _weights(connection, name))
    except (StatementRefused, ValueError) as error:
        logger.warning("a collation's weights are not known", collation=name, error=str(error))
        return None
    finally:
        connection.rollback()


def _weights(connection: Connection, name: str) -> dict[str, bytes]:
    weights = {_PART: _weight(connection, name, _PART)}
    characters = (character for character in asked(name) if character != _PART)
    while batch := list(itertools.islice(characters, _BATCH)):
        together = _weight(connection, name, _PART.join(batch))
        weights.update(zip(batch, _parts(together, weights[_PART]), strict=True))
    return weights


def _weight(connection: Connection, name: str, text: str) -> bytes:
    """Of the first level."""
    converted = b"CONVERT(%b USING %b) COLLATE %b" % (
        string_literal(text),
        name.partition("_")[0].encode(),
        name.encode(),
    )
    level = b" LEVEL 1" if connection.dialect is Dialect.MARIADB else b""
    # HEX: TiDB gives the bytes as a text.
    ((digits,),) = connection.rows(b"SELECT HEX(WEIGHT_STRING(%b%b))" % (converted, level))
    if digits is None:
        raise ValueError(f"{name}: no weights")
    weight = bytes.fromhex(digits)
    if "_0900_" not in name:
        return weight
    return b"".join(itertools.takewhile(_LEVELS_END.__ne__, _pairs(weight)))


def _pairs(weight: bytes) -> Iterator[bytes]:
    return (weight[at : at + 2] for at in range(0, len(weight), 2))


def _parts(together: bytes, mark: bytes) -> Iterator[bytes]:
    """What is between the marks, which begin at even places."""
    start = at = 0
    while mark and (at := together.find(mark, at)) >= 0:
        if at % 2:
            at += 1
            continue
        yield together[start:at]
        start = at = at + len(mark)
    yield together[start:]
