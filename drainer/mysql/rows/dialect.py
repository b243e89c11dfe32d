"""Dialect: which kind of server a session is of, by the version that it says in its handshake.

Tests  tests/drainer/mysql/test_session_on_tidb.py, tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

from enum import Enum


class Dialect(Enum):
    MARIADB = "MariaDB"
    MYSQL = "MySQL"
    TIDB = "TiDB"

    @classmethod
    def of(cls, server_version: str) -> Dialect:
        """A server that names itself neither MariaDB nor TiDB is MySQL, or stands for one."""
        version = server_version.lower()
        if "mariadb" in version:
            return cls.MARIADB
        return cls.TIDB if "tidb" in version else cls.MYSQL

    def has_names(self, *names: str) -> bool:
        """Whether such names can be there. Others than TiDB have none with characters outside the BMP:
        MariaDB refuses to look for one, MySQL looks for `?` in its place, and makes one."""
        return self is Dialect.TIDB or max("".join(names), default="") <= "\uffff"
