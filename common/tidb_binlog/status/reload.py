"""Status of the configuration: when the file was read again last, and what came of it.

Tests  tests/common/serving/test_reload.py
"""

from __future__ import annotations

from msgspec import Struct


class ReloadStatus(Struct, kw_only=True):
    """`time_s`: of the last reload, seconds since 1970, 0 for none so far; `ok`: whether the file was taken,
    as the one of the start was. `changed`: keys that are in force since then; `needs_restart`: keys whose
    values in the file are not. `error`: why nothing was taken."""

    time_s: float = 0.0
    ok: bool = True
    changed: list[str] = []
    needs_restart: list[str] = []
    error: str = ""
