"""`python:package.module:Class` and entry points: what cannot be used is one line, at the start and in config
check."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from drainer.config import sink_class
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.config.sink_class import BATCH_METHODS, PORT_ENDS, PORT_METHODS
from drainer.sink import Sink
from drainer.sink.batch.protocol import BatchSink
from tests import forked
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError

HERE = "tests.drainer.config.sink_classes"


def load(tmp_path: Path, toml: str) -> DrainerConfig:
    file = tmp_path / "drainer.toml"
    file.write_text(toml)
    return loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)


def test_a_class_and_its_options(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        f'[syncer]\ndb-type = "python:{HERE}:Checks"\n[syncer.to.options]\nurl = "u"\nshards = 3\n'
        "[syncer.to.options.more]\nx = 1\n",
    )
    assert settings.to_options == {"url": "u", "shards": 3, "more": {"x": 1}}
    assert not settings.to_database
    found = sink_class.find(settings.db_type)
    assert found is not None
    assert (found.name, found.of.__name__, found.is_port) == (f"{HERE}:Checks", "Checks", False)


def test_options_may_be_secrets_and_are_shown_nowhere(tmp_path: Path) -> None:
    settings = load(
        tmp_path, f'[syncer]\ndb-type = "python:{HERE}:Right"\n[syncer.to.options]\ntoken = "s3cret"\n'
    )
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(loading.describe(settings))


def test_a_class_with_take_implements_the_port(tmp_path: Path) -> None:
    found = sink_class.find(load(tmp_path, f'[syncer]\ndb-type = "python:{HERE}:Port"\n').db_type)
    assert found is not None
    assert found.is_port, "and is not made to check options: that would need a context"


WRONG: list[tuple[str, str, str]] = [
    ("python:", "syncer.db-type is python:", "python:package.module:Class"),
    ("python:shop.sinks", "syncer.db-type is python:shop.sinks", "package.module:Class"),
    ("python:shop..x:A", "syncer.db-type is", "package.module:Class"),
    (
        "python:no_such_shop.sinks:A",
        "cannot be imported: ModuleNotFoundError: No module named 'no_such_shop'",
        "PYTHONPATH",
    ),
    (
        "python:tests.drainer.config.broken_sink:A",
        "cannot be imported: RuntimeError: no such library.so",
        "correct",
    ),
    (f"python:{HERE}:Rihgt", "has no class Rihgt", "did you mean Right?"),
    (f"python:{HERE}:instance", "is no class, but of type Right", "correct"),
    (f"python:{HERE}:NoWrite", "has no method write(items, position)", "docs/sinks.md"),
    (f"python:{HERE}:WriteWithoutPosition", "cannot be called with write(items, position)", "docs/sinks.md"),
    (f"python:{HERE}:CloseWithArgument", "cannot be called with close()", "docs/sinks.md"),
    (f"python:{HERE}:NoOptions", "cannot be called with __init__(options)", "docs/sinks.md"),
    (f"python:{HERE}:HalfPort", "has no method take_ddl(ddl)", "docs/sinks.md"),
    (f"python:{HERE}:NoRows", "batch_rows of the sink", "from 1 on"),
    (f"python:{HERE}:RetriesText", "retriable of the sink", "tuple of exception classes"),
    (f"python:{HERE}:RetriesNumbers", "retriable of the sink", "tuple of exception classes"),
    (f"python:{HERE}:Checks", "syncer.to.options.url is missing", "http://"),
    ("flash", "unknown DestDBType: flash", "python:package.module:Class"),
]


@pytest.mark.parametrize(("db_type", "words", "hint"), WRONG, ids=[one[0] for one in WRONG])
def test_what_cannot_be_used_is_one_line(tmp_path: Path, db_type: str, words: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f'[syncer]\ndb-type = "{db_type}"\n')
    assert words in raised.value.message
    assert hint in raised.value.hint
    assert "\n" not in str(raised.value)


def test_an_exception_over_options_is_told_with_its_text(tmp_path: Path) -> None:
    toml = f'[syncer]\ndb-type = "python:{HERE}:Checks"\n[syncer.to.options]\nurl = "u"\n'
    with pytest.raises(ConfigError, match=r"does not take its options: KeyError: 'shards'"):
        load(tmp_path, toml)


def test_options_are_for_sinks_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not for db-type file"):
        load(tmp_path, '[syncer]\ndb-type = "file"\n[syncer.to.options]\nx = 1\n')


def test_config_check_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "drainer.toml"
    file.write_text(f'[syncer]\ndb-type = "python:{HERE}:NoWrite"\n')
    done = forked.run("binlogctl", "config", "check", str(file), "-output", "json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert done.returncode != 0
    assert "has no method write(items, position)" in problem["message"]


# -- what installed packages bring -------------------------------------------------------------------------


def bring(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> None:
    made = [EntryPoint(name, value, sink_class.GROUP) for name, value in entries]

    def of_group(*, group: str) -> list[EntryPoint]:
        assert group == "tidb_binlog.sinks"
        return made

    monkeypatch.setattr(importlib.metadata, "entry_points", of_group)


def test_an_entry_point_is_a_name_for_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, ("search", f"{HERE}:Right"), ("other", f"{HERE}:NoWrite"))
    settings = load(tmp_path, '[syncer]\ndb-type = "search"\n[syncer.to.options]\nx = 1\n')
    found = sink_class.find(settings.db_type)
    assert found is not None
    assert (found.name, found.of.__name__) == ("search", "Right")
    with pytest.raises(ConfigError, match="the sink other has no method write"):
        load(tmp_path, '[syncer]\ndb-type = "other"\n')
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, '[syncer]\ndb-type = "serch"\n')
    assert "file, pb, delta, iceberg, other, search" in raised.value.hint.replace("kafka, ", "").replace(
        "stdout, http, ", ""
    )


def test_a_name_that_two_packages_bring_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, ("search", f"{HERE}:Right"), ("search", f"{HERE}:Checks"))
    with pytest.raises(ConfigError, match="is brought by 2 packages") as raised:
        load(tmp_path, '[syncer]\ndb-type = "search"\n')
    assert raised.value.hint


def test_built_in_names_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(monkeypatch, ("file", f"{HERE}:NoWrite"))
    assert load(tmp_path, '[syncer]\ndb-type = "file"\n').db_type == "file"


# -- what is checked is what there is ----------------------------------------------------------------------


def test_the_methods_asked_for_are_those_of_the_protocols() -> None:
    def arguments(protocol: Any, method: str) -> list[str]:
        return [*inspect.signature(getattr(protocol, method)).parameters][1:]

    for method, given in BATCH_METHODS.items():
        assert arguments(BatchSink, method) == list(given)
    for method, given in PORT_METHODS.items():
        assert arguments(Sink, method) == list(given)
    for method, keyword in PORT_ENDS.items():
        assert arguments(Sink, method) == [keyword]
    without_default = {
        name
        for name, function in vars(Sink).items()
        if inspect.isfunction(function)
        and not name.startswith("_")
        and "..." in inspect.getsource(function).splitlines()[-1]
    }
    assert without_default == {*PORT_METHODS, *PORT_ENDS}
