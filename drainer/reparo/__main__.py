"""`python -m drainer.reparo`: the program, or one line about a package that it lacks."""

from __future__ import annotations

from typing import NoReturn

from tidb_binlog.process import programs


def main() -> NoReturn:
    """Start the program."""
    programs.run("reparo", "drainer.reparo.program", "server")


if __name__ == "__main__":
    main()
