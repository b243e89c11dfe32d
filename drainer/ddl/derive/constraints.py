"""Constraints: what a downstream may refuse without a row being lost: foreign keys, checks, invisible keys.

Out    one step each, with the line that says what is missing when it is refused
Tests  tests/drainer/ddl/derive/test_derive.py
"""

from __future__ import annotations

from drainer.ddl.derive.definition import ForeignKey
from drainer.ddl.derive.render import check_clause, foreign_key_clause, name_of
from drainer.ddl.derive.values import Alteration, Step, step
from drainer.mysql.rows.dialect import Dialect


def extras(change: Alteration, missing: list[str]) -> list[Step]:
    """Foreign keys, checks and invisible keys that are new: a step each, and no loss if it is refused."""
    table = name_of(*change.table)
    before, after, present = change.before, change.after, change.present
    known_keys = set(before.foreign_keys) if before else set()
    steps = [
        _add_foreign_key(key, change, table)
        for key in after.foreign_keys
        if key not in known_keys and key.name.lower() not in present.foreign_keys
    ]
    known_checks = {check.name: check for check in before.checks} if before else {}
    checks_there = present.checks - {check.name.lower() for check in known_checks.values()}
    for check in after.checks:
        if known_checks.get(check.name) == check or check.name.lower() in checks_there:
            continue
        if not check.enforced and change.server.dialect is Dialect.MARIADB:
            missing.append(f"check {check.name}, which is not enforced upstream either")
            continue
        clause = check_clause(check, change.server)
        steps.append(step(f"ALTER TABLE {table} ADD {clause}", lacks=f"check {check.name}"))
    return steps + _visibility(change, table, missing)


def _add_foreign_key(key: ForeignKey, change: Alteration, table: str) -> Step:
    place = change.route(key.schema, key.table) if key.schema else (change.table[0], key.table)
    clause = foreign_key_clause(key, *place)
    return step(f"ALTER TABLE {table} ADD {clause}", lacks=f"foreign key {key.name}")


def drop_constraints(change: Alteration) -> list[Step]:
    """Steps before anything else: a key that a foreign key needs cannot be dropped, nor a checked column."""
    table = name_of(*change.table)
    before, checks = change.before, set(change.after.checks)
    gone = [
        step(f"ALTER TABLE {table} {change.server.drop_check} {name_of(check.name)}")
        for check in (before.checks if before else ())
        if check not in checks and check.name.lower() in change.present.checks
    ]
    kept = {key.name.lower() for key in change.after.foreign_keys}
    old = change.before.foreign_keys if change.before else ()
    return gone + [
        step(f"ALTER TABLE {table} DROP FOREIGN KEY {name_of(key.name)}")
        for key in old
        if key.name.lower() not in kept and key.name.lower() in change.present.foreign_keys
    ]


def _visibility(change: Alteration, table: str, missing: list[str]) -> list[Step]:
    """Keys that queries are to ignore, or to use again."""
    steps = []
    was = {key.name.lower(): key.invisible for key in change.before.keys} if change.before else {}
    for key in change.after.keys:
        key_there = change.present.key(key.name)
        if key.invisible == was.get(key.name.lower(), False) or key.has_expressions:
            continue
        if key_there is not None and key_there.used is not key.invisible:
            continue
        word = change.server.invisible
        lacks = f"key {key.name} is {'invisible' if key.invisible else 'visible'} upstream"
        if not word:
            missing.append(lacks)
            continue
        if not key.invisible:
            word = f"NOT {word}" if change.server.dialect is Dialect.MARIADB else "VISIBLE"
        statement = f"ALTER TABLE {table} ALTER INDEX {name_of(key.name)} {word}"
        steps.append(step(statement, lacks=lacks))
    return steps
