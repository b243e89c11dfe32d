"""Errors: a tree, of which each class that is documented has an exit code of its own."""

from __future__ import annotations

from tidb_binlog import errors
from tidb_binlog.errors import BinlogError

PRIVATE_CODES = {"FlagError"}  # the Go programs' code for a command line that cannot be read


def test_the_table_of_the_docstring_is_the_tree() -> None:
    classes = {name: found for name, found in vars(errors).items() if isinstance(found, type)}
    documented = {name for name in classes if f" {name} " in (errors.__doc__ or "")}
    assert documented == {name for name, found in classes.items() if issubclass(found, BinlogError)}


def test_exit_codes() -> None:
    found = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BinlogError)]
    codes = [one.exit_code for one in found if one.__name__ not in PRIVATE_CODES]
    assert len(set(codes)) == len(codes)


def test_the_text_ends_with_the_hint() -> None:
    assert str(BinlogError("it broke")) == "it broke"
    assert str(BinlogError("it broke", hint="mend it")) == "it broke (mend it)"
