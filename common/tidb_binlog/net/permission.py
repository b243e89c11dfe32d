"""Permission: what a certificate may allow its holder; each method and each route asks for one of them.

The names that have one are `security.cert-read-cn`, `cert-write-cn` and `cert-admin-cn`; empty: all who may
connect.

Tests  tests/common/serving/test_permissions.py
"""

from __future__ import annotations

from enum import StrEnum


class Permission(StrEnum):
    """`WRITE` on a drainer: to tell it that a pump is there."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
