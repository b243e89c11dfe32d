"""Sinks: which kinds of downstream there are (`syncer.db-type`), and the module that builds each.

A module of the table has `build` and `rehearse`, as `drainer.app.build.Builder` says. It is loaded when a
configuration names it: a drainer that writes files needs no client of a database.

Tests  tests/drainer/app/test_build.py, tests/drainer/config/test_options.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SINKS: Final[Mapping[str, str]] = {
    "mysql": "drainer.app.build_mysql",
    "tidb": "drainer.app.build_mysql",
    "file": "drainer.app.build_file",
    "pb": "drainer.app.build_file",
    "kafka": "drainer.app.build_kafka",
    "stdout": "drainer.app.build_json",
    "http": "drainer.app.build_json",
}
OWN: Final = "drainer.app.build_own"
"""Builds what is not in the table: sinks of one's own."""
DATABASES: Final = ("mysql", "tidb")
