"""What a session does in its own way on a TiDB: rows that a strict one does not find, or does not take."""

from __future__ import annotations

from typing import cast

import pytest

from drainer.mysql.connection import Connection, prepare_session
from drainer.mysql.rows.change import TableTarget
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.rows.statement import Statement
from drainer.mysql.session import run
from drainer.mysql.session_mode import DEFAULT


class Server:
    """Of five rows a strict session finds `strict`, one after it the rest."""

    def __init__(self, version: str, strict: int) -> None:
        self.dialect = Dialect.of(version)
        self.rows = {"strict": strict, "lax": 5 - strict}
        self.ran: list[str] = []
        self.settings: list[str] = []

    def run(self, sql: bytes) -> int:
        if sql.startswith(b"SET "):
            self.settings.append(sql.decode())
            return 0
        self.ran.append("strict")
        return self.rows["strict"]

    def run_lax(self, *_: object) -> int:
        self.ran.append("lax")
        return self.rows["lax"]


TIDB, MARIADB = "8.0.11-TiDB-v7.5.0", "10.11.6-MariaDB"
DELETE = b"DELETE FROM `d`.`t` WHERE `a` IN (%b)"
UPDATE = b"UPDATE `d`.`t` SET `b`=1 WHERE `a`<=>%b LIMIT 5"
WHOLE, NO_MONTH = b"'2020-01-01'", b"'2020-00-01'"


@pytest.mark.parametrize(
    ("version", "sql", "strict", "expected", "ran"),
    [
        (TIDB, DELETE % WHOLE, 2, (5, 5), ["strict", "lax"]),
        (TIDB, DELETE % NO_MONTH, 0, (5, 5), ["strict", "lax"]),
        (TIDB, DELETE % NO_MONTH, 5, (5, 5), ["strict"]),
        (TIDB, DELETE % NO_MONTH, 2, None, ["strict", "lax"]),
        (TIDB, DELETE % WHOLE, 5, None, ["strict"]),
        (TIDB, UPDATE % NO_MONTH, 0, (5, 5), ["strict", "lax"]),
        (MARIADB, UPDATE % NO_MONTH, 5, (6, 6), ["strict"]),
        (TIDB, b"INSERT INTO `d`.`t` VALUES ('2020-00-01')", 5, (6, 6), ["strict"]),
        (MARIADB, DELETE % NO_MONTH, 5, (6, 6), ["strict"]),
    ],
)
def test_what_a_strict_tidb_does_not_find_is_removed_by_a_lax_one(
    version: str, sql: bytes, strict: int, expected: tuple[int, int] | None, ran: list[str]
) -> None:
    server = Server(version, strict)
    statement = Statement(cast(TableTarget, None), sql, expected)
    assert run(cast(Connection, server), statement, DEFAULT) == 5
    assert server.ran == ran


def test_a_session_takes_all_text_that_a_tidb_has_stored() -> None:
    sessions = {version: Server(version, 0) for version in (TIDB, MARIADB)}
    for session in sessions.values():
        prepare_session(cast(Connection, session))
    checks = {f"SET SESSION tidb_skip_{name}_check=1" for name in ("ascii", "utf8")}
    assert checks <= set(sessions[TIDB].settings)
    assert not checks & set(sessions[MARIADB].settings)
