from __future__ import annotations

import importlib

import pyspark
import pytest

from drainer.spark.commands import stream
from tests.missing import without
from tidb_binlog.errors import ConfigError

READER = "drainer.spark.source.stream_reader"


def test_a_pyspark_without_admission_of_streams_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What limits a batch came with 4.2; batch jobs, and the help of all commands, do without it."""
    importlib.import_module("pyspark.sql.datasource")  # of 4.3, which needs that module itself
    forget = rf"({READER}|drainer\.spark\.replay\.stream_apply)$"
    without(monkeypatch, "pyspark.sql.streaming.datasource", forget=forget)
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    importlib.reload(stream)
    with pytest.raises(ConfigError) as caught:
        importlib.import_module(READER)
    assert caught.value.message == "a stream needs PySpark 4.2 or newer, and this is 4.0.5"
    assert "pip install 'pyspark>=4.2'" in (caught.value.hint or "")
