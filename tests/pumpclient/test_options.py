"""Options: the defaults are TiDB's, nonsense is refused."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pumpclient import Options
from tidb_binlog.errors import ConfigError


def test_defaults() -> None:
    options = Options()
    assert (options.write_timeout_s, options.retry_pause_s, options.finish_retry_pause_s) == (15.0, 0.1, 1.0)
    assert (options.finish_deadline_s, options.probe_interval_s, options.errors_max) == (600.0, 30.0, 10)
    assert options.registry_timeout_s == 5.0


@pytest.mark.parametrize("name", [field.name for field in fields(Options)])
def test_no_option_may_be_negative_and_a_switch_is_true_or_false(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Options(**{name: -1})  # type: ignore[arg-type]


def test_only_the_error_count_may_be_zero() -> None:
    assert Options(errors_max=0).errors_max == 0
    with pytest.raises(ConfigError):
        Options(write_timeout_s=0)
