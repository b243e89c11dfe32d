"""The session's modes and variables: what may be given, what is always there, what is refused."""

from __future__ import annotations

import pytest

from drainer.mysql.session_mode import DEFAULT, session_mode, session_variables
from tidb_binlog.errors import ConfigError


def test_the_default_is_strict_and_the_lax_form_is_not() -> None:
    assert session_mode("") is DEFAULT
    assert "STRICT_TRANS_TABLES" in DEFAULT.strict.split(",")
    assert set(DEFAULT.strict.split(",")) - set(DEFAULT.lax.split(",")) == {"STRICT_TRANS_TABLES"}


@pytest.mark.parametrize(
    ("given", "strict", "lax"),
    [
        ("NO_ENGINE_SUBSTITUTION", "NO_ENGINE_SUBSTITUTION", "NO_ENGINE_SUBSTITUTION"),
        ("strict_all_tables, ansi_quotes", "STRICT_ALL_TABLES,ANSI_QUOTES", "ANSI_QUOTES"),
        ("TRADITIONAL", "TRADITIONAL", ""),
    ],
)
def test_a_given_mode_takes_the_place_of_the_default(given: str, strict: str, lax: str) -> None:
    always = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
    found = session_mode(given)
    assert found.strict == f"{strict},{always}"
    assert found.lax == f"{lax},{always}".lstrip(",")


@pytest.mark.parametrize(
    "mode",
    ["NO_BACKSLASH_ESCAPES", "EMPTY_STRING_IS_NULL", "PAD_CHAR_TO_FULL_LENGTH", "ORACLE", "NONSENSE", "a'b"],
)
def test_modes_that_change_what_literals_mean_are_refused(mode: str) -> None:
    with pytest.raises(ConfigError, match="invalid config: `sql-mode`"):
        session_mode(f"STRICT_TRANS_TABLES,{mode}")


def test_variables() -> None:
    given = {"time_zone": "+08:00", "Lock_Wait_Timeout": 5, "a": "x'y\\z", "b": True, "c": "10", "d": 0.5}
    assert session_variables(given) == (
        ("lock_wait_timeout", "5"), ("a", "'x''y\\\\z'"), ("b", "1"), ("c", "10"), ("d", "0.5"),
    )  # fmt: skip
    assert session_variables(None) == ()


@pytest.mark.parametrize(
    "name",
    [
        "sql_mode",
        "foreign_key_checks",
        "autocommit",
        "character_set_client",
        "collation_connection",
        "a b",
        "x=1,y",
    ],
)
def test_variables_that_lanes_rest_on_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"syncer\.to\.params"):
        session_variables({name: 1})


def test_lists_are_no_values() -> None:
    with pytest.raises(ConfigError, match="neither a number nor a text"):
        session_variables({"a": [1]})
