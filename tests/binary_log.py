"""Binary log: what a MariaDB says of the transactions that it has committed, whoever wrote them."""

from __future__ import annotations

import re
import subprocess

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.mark import is_mark_table

ROW = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `(.+)`\.`(.+)`$")
COMMIT = "COMMIT/*!*/;"
OF_DRAINERS = "tidb_binlog"
Name = tuple[str, str]


class BinlogServer(MariaDbServer):
    """A MariaDB with a row-based binary log."""

    def _options(self) -> list[str]:
        return [*super()._options(), "--log-bin=binlog", "--binlog-format=ROW", "--server-id=1"]

    def reading(self, *more: str) -> list[str]:
        """The command that prints the log from its beginning, with its rows."""
        return [
            *("mariadb-binlog", "--no-defaults", "--read-from-remote-server", "--verbose"),
            *("--base64-output=decode-rows", f"--host={self.host}", f"--port={self.port}"),
            *(f"--user={self.user}", f"--password={self.password}", *more, "binlog.000001"),
        ]

    def forget(self) -> None:
        """Begin the log anew."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("RESET MASTER")

    def unmarked(self) -> list[list[Name]]:
        """The tables of each transaction that has rows of an application, and no mark."""
        lines = subprocess.run(self.reading(), capture_output=True, check=True, timeout=600).stdout
        found, names = [], set[Name]()
        for line in lines.decode(errors="replace").splitlines():
            if row := ROW.match(line):
                names.add((row[2], row[3]))
            elif line == COMMIT:
                of_applications = {name for name in names if name[0] != OF_DRAINERS}
                if of_applications and not any(is_mark_table(*name) for name in names):
                    found.append(sorted(of_applications))
                names = set()
        return found
