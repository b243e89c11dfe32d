"""Grants: whether the lines of SHOW GRANTS give the rights that a drainer needs.

In     lines of SHOW GRANTS of MySQL, MariaDB or TiDB, those of enabled roles among them
Out    rights that are missing, by the place where they are
Never  shows a line: MariaDB puts the hash of the password into the first one

Source of the rights: what docs/drainer.md lists for a drainer's user.

Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidb_binlog.late_dataclass import dataclass, field

ROWS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
TABLES: Final = ("CREATE", "ALTER", "DROP", "INDEX")
NICE: Final = ("CREATE TEMPORARY TABLES", "REFERENCES", "CREATE VIEW", "SHOW VIEW", "TRIGGER")
"""Without these some DDL is refused, or reported later than it could be; rows still go through."""
GLOBAL: Final = ("PROCESS",)
GLOBAL_MARIADB: Final = ("SET USER",)
_SET_USER_SINCE: Final = (10, 5)
EVERYWHERE: Final = "*"
_SYSTEM: Final = frozenset({"mysql", "sys", "performance_schema", "information_schema"})

_GRANT: Final = re.compile(
    r"(?P<verb>GRANT|REVOKE)\s+(?P<rights>.+?)\s+ON\s+(?:TABLE\s+)?(?P<place>\S+)\s+(?:TO|FROM)\s",
    re.IGNORECASE | re.DOTALL,
)
_PLACE: Final = re.compile(r"(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<plain>[^`.]+))\.(?P<table>.+)")
_ALL: Final = frozenset({"ALL", "ALL PRIVILEGES"})
# A right that another one brings along.
_IMPLIED: Final = {"SUPER": ("SET USER",), "BINLOG ADMIN": ()}


@dataclass(frozen=True, slots=True)
class Rights:
    """`everywhere` on *.*; `databases`: (pattern of a name, rights) of whole databases; `revoked`: what MySQL
    with `partial_revokes` takes from `everywhere`, by database."""

    everywhere: frozenset[str]
    databases: tuple[tuple[str, frozenset[str]], ...] = ()
    revoked: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def has(self, right: str, database: str = EVERYWHERE) -> bool:
        """On everything, or on all of one database."""
        if _given(self.everywhere, right) and not _given(self.revoked.get(database, frozenset()), right):
            return True
        return database != EVERYWHERE and any(
            _given(rights, right) and _matches(pattern, database) for pattern, rights in self.databases
        )


def parse(lines: Iterable[str]) -> Rights:
    """Grants on single tables, columns and routines are not enough for a drainer and are left out."""
    everywhere: set[str] = set()
    databases: list[tuple[str, frozenset[str]]] = []
    revoked: dict[str, frozenset[str]] = {}
    for line in lines:
        match = _GRANT.match(line.strip())
        place = _PLACE.fullmatch(match["place"]) if match else None
        if match is None or place is None or place["table"] != "*":
            continue
        rights = _rights(match["rights"])
        name = place["plain"] if place["quoted"] is None else place["quoted"].replace("``", "`")
        if match["verb"].upper() == "REVOKE":
            revoked[name] = revoked.get(name, frozenset()) | rights
        elif name == EVERYWHERE:
            everywhere |= rights
        else:
            databases.append((name, rights))
    return Rights(frozenset(everywhere), tuple(databases), revoked)


def missing(
    rights: Rights, databases: Sequence[str] | None, schema: str, *, apart: Sequence[str]
) -> dict[str, list[str]]:
    """Rights that lack, by database (or `*`). `databases`: None for all that the upstream has or will have;
    `schema` is that of the checkpoint; `apart` are needed on everything in any case (`apart_of`)."""
    places = list(dict.fromkeys([*databases, schema])) if databases is not None else [EVERYWHERE]
    if databases is None:
        places += [name for name in rights.revoked if name not in _SYSTEM]
    lacking: dict[str, list[str]] = {}
    for place in places:
        if rights_of_place := [right for right in (*ROWS, *TABLES, *NICE) if not rights.has(right, place)]:
            lacking[place] = rights_of_place
    if rights_apart := [right for right in apart if not rights.has(right)]:
        lacking[EVERYWHERE] = lacking.get(EVERYWHERE, []) + rights_apart
    return lacking


def apart_of(mariadb: tuple[int, int] | None) -> tuple[str, ...]:
    """Rights that are given on everything only; `mariadb` is its version, None for other servers."""
    if mariadb is None:
        return GLOBAL
    return (*GLOBAL, *(GLOBAL_MARIADB if mariadb >= _SET_USER_SINCE else ("SUPER",)))


def is_serious(lacking: Iterable[str]) -> bool:
    """Whether replication ends without these, sooner or later."""
    return any(right in ROWS or right in TABLES for right in lacking)


def _rights(text: str) -> frozenset[str]:
    bare = re.sub(r"\([^)]*\)", "(", text)  # a right on columns is none on the table
    return frozenset(" ".join(part.upper().split()) for part in bare.split(",") if "(" not in part)


def _given(rights: frozenset[str], right: str) -> bool:
    if right in rights or rights & _ALL:
        return True
    return any(holder in rights and right in brings for holder, brings in _IMPLIED.items())


def _matches(pattern: str, database: str) -> bool:
    """A database's name in a grant: % and _ are wild cards unless a backslash is before them."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    regex = "".join(
        re.escape(part[1]) if part[0] == "\\" and len(part) > 1 else wild.get(part, re.escape(part))
        for part in parts
    )
    return re.fullmatch(regex, database, re.DOTALL | re.IGNORECASE) is not None
