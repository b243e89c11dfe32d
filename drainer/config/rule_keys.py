"""Rule keys: what the tables of each rule may have, for the options, and for those who read them.

Tests  tests/deploy/test_config_schema.py
"""

from __future__ import annotations

from typing import Final

NAMES: Final = ("db-name", "tbl-name")
"""Of replicate-do-table and ignore-table."""
ROUTE: Final = ("source", "target", "binlog-filter-rule")
EVENTS: Final = ("ignore-event", "ignore-sql")
COLUMNS: Final = (*NAMES, "columns", "ignore-columns")
ROWS: Final = (*NAMES, "where", "mask", "salt-file", "python")
DDL: Final = ("kind", *NAMES, "sql", "action", "text")
