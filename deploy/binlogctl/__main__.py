"""`python -m binlogctl`: the program, or one line about a package that it lacks."""

from __future__ import annotations

from typing import NoReturn

from tidb_binlog.process import programs


def main() -> NoReturn:
    """Run the program, or say which package it lacks."""
    programs.run("binlogctl", "binlogctl.program", "server")


if __name__ == "__main__":
    main()
