"""Transient errors: which errors of the downstream pass by themselves.

Out    what kind of trouble it is; None for an error that the same work would get again
Holds  what is in the table is tried again without limit; of everything else the row's table waits, or the
       drainer stops: see `drainer.mysql.refusal`
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


class Trouble(Enum):
    """Values are shown to operators and label a metric. The last is a lane's own, no error."""

    CONNECTION = "connection lost"
    RESTART = "server starting or stopping"
    READ_ONLY = "server is read-only"
    CONNECTIONS = "too many connections"
    LOCK = "deadlock or lock wait"
    INTERRUPTED = "statement interrupted"
    RESOURCES = "server out of space or memory"
    COMMIT = "commit failed"
    STORE = "TiDB's store"
    RELAY_LOG = "relay log is slow"

    @property
    def keeps_connection(self) -> bool:
        """The session is as good as before, once it is rolled back."""
        return self in (Trouble.LOCK, Trouble.RELAY_LOG)


NUMBERS: Final[dict[Trouble, tuple[int, ...]]] = {
    # reading and writing packets, killed, gone away, lost
    Trouble.CONNECTION: (1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031),
    Trouble.RESTART: (1047, 1053, 1077, 1079, 3169),
    Trouble.READ_ONLY: (1290, 1792, 1836),
    Trouble.CONNECTIONS: (1040, 1129, 1135, 1203, 1226, 1637),
    Trouble.LOCK: (1020, 1205, 1213, 1614),
    Trouble.INTERRUPTED: (1317, 1969, 3024),
    Trouble.RESOURCES: (1021, 1037, 1038, 1041, 1114, 1206),
    Trouble.COMMIT: (1180, 3101),
    # PD and TiKV timeouts, busy, region, write conflict, schema changed, lock's time is over
    Trouble.STORE: (
        *(8002, 8005, 8022, 8027, 8028, 8229),
        *(9001, 9002, 9003, 9004, 9005, 9007, 9010, 9011, 9012, 9013),
    ),
}
_BY_NUMBER: Final = {number: trouble for trouble, numbers in NUMBERS.items() for number in numbers}
_OF_FILES: Final = frozenset({3, 1026, 1030})  # a storage engine's, for any reason
_FULL: Final = re.compile(r"\b(?:28|122)\b|No space left|quota exceeded", re.IGNORECASE)


def trouble_of_number(number: int, text: str = "") -> Trouble | None:
    """`text` is the server's, for numbers that do not say enough."""
    if number in _OF_FILES and _FULL.search(text):
        return Trouble.RESOURCES
    return _BY_NUMBER.get(number)
