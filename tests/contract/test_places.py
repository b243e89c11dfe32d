"""What a user names as a place, by every command and key: what cannot be done there is refused before
anything is written, and a path or URI that can be used is not."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from binlogctl.commands import config as config_command
from drainer.places import place as places
from drainer.places.place import CREATE, READ, WRITE, Ability, Place
from drainer.points.restore.options import RestoreOptions
from drainer.spark import program
from tidb_binlog.errors import BinlogError, ConfigError, FlagError

ARCHIVE = "/nowhere/archive"
DATABASE = "mysql://root@127.0.0.1:1/"
COMMANDS: dict[str, tuple[Ability, list[str]]] = {
    "read --archive": (READ, ["read", "--archive", "{}"]),
    "files --archive": (READ, ["files", "--archive", "{}"]),
    "stats --archive": (READ, ["stats", "--archive", "{}"]),
    "history --archive": (READ, ["history", "--table", "a.b", "--archive", "{}"]),
    "audit --archive": (READ, ["audit", "--archive", "{}"]),
    "image --archive": (READ, ["image", "--into", "/nowhere/image", "--archive", "{}"]),
    "replay --archive": (READ, ["replay", "--to", DATABASE, "--archive", "{}"]),
    "flashback --archive": (READ, ["flashback", "--start", "1", "--file", "/nowhere/x", "--archive", "{}"]),
    "audit --image": (READ, ["audit", "--archive", ARCHIVE, "--image", "{}"]),
    "image --base": (READ, ["image", "--archive", ARCHIVE, "--into", "/nowhere/image", "--base", "{}"]),
    "export --from": (READ, ["export", "--to", "/nowhere/archive", "--from", "{}"]),
    "image --into": (WRITE, ["image", "--archive", ARCHIVE, "--into", "{}"]),
    "read --save": (WRITE, ["read", "--archive", ARCHIVE, "--save", "{}"]),
    "history --save": (WRITE, ["history", "--table", "a.b", "--archive", ARCHIVE, "--save", "{}"]),
    "index --archive": (WRITE, ["index", "--archive", "{}"]),
    "export --to": (WRITE | CREATE, ["export", "--from", "/nowhere/pump", "--to", "{}"]),
}
KEYS: dict[str, tuple[Ability, str]] = {
    "syncer.to.dir": (WRITE | CREATE, 'db-type = "file"\n[syncer.to]\ndir = "{}"'),
    "syncer.to.claim-check": (
        WRITE,
        'db-type = "kafka"\n[syncer.to]\nformat = "canal-json"\noversize = "claim-check"\nclaim-check = "{}"',
    ),
}
LOCAL = {
    "data-dir": 'data-dir = "{}"',
    "log-file": 'log-file = "{}"',
    "security.ssl-ca": '[security]\nssl-ca = "{}"',
    "syncer.to.password-file": '[syncer]\ndb-type = "mysql"\n[syncer.to]\npassword-file = "{}"',
    "syncer.relay.log-dir": '[syncer]\ndb-type = "mysql"\n[syncer.relay]\nlog-dir = "{}"',
}
Ask = Callable[[str], str]


def of_command(name: str) -> Ask:
    def ask(where: str) -> str:
        """What it is refused with; it has no archive, so it comes no further than to look for that."""
        with pytest.raises(BinlogError) as refused:
            program.run([word.format(where) for word in COMMANDS[name][1]])
        return str(refused.value)

    return ask


def of_key(name: str, tmp_path: Path) -> Ask:
    def ask(where: str) -> str:
        (tmp_path / "drainer.toml").write_text(f"[syncer]\n{KEYS[name][1].format(where)}\n")
        examined = config_command.examine(str(tmp_path / "drainer.toml"), "drainer", {})
        return "; ".join(map(str, examined.problems))

    return ask


@pytest.fixture(params=[*COMMANDS, *KEYS])
def option(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Ability, Ask]:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    name = request.param
    if name in COMMANDS:
        return COMMANDS[name][0], of_command(name)
    return KEYS[name][0], of_key(name, tmp_path)


def test_what_cannot_be_used_is_refused(option: tuple[Ability, Ask], monkeypatch: pytest.MonkeyPatch) -> None:
    needs, ask = option
    assert "nowhere is no file system that is known here" in ask("nowhere://bucket/x")
    assert "write s3://BUCKET/PATH" in ask("s3:bucket/x")
    assert "names no bucket" in ask("s3:///x")
    assert "names another host" in ask("file://other/x")
    if needs & WRITE:
        assert "has credentials in it" in (said := ask("s3://key:s3cr3t@bucket/x"))
        assert "s3cr3t" not in said
        assert "abfs:// cannot be written to" in ask("abfs://container/x")
    if needs & CREATE:
        assert "hdfs:// cannot be owned by one writer" in ask("hdfs://name:1/x")
    missing = "obstore" if needs & WRITE else "pyarrow"
    find = importlib.util.find_spec
    monkeypatch.setattr(
        places.importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    assert f"{missing} is not installed (pip install" in ask("s3://bucket/x")
    assert os.listdir(".") == []


def test_what_can_be_used_is_not(option: tuple[Ability, Ask], tmp_path: Path) -> None:
    """What is said then is of what is there, not of how it is named."""
    needs, ask = option
    forms = ["relative/x", str(tmp_path / "absolute" / "x"), (tmp_path / "uri" / "x").as_uri()]
    for where in forms:
        said = ask(where)
        assert "file system" not in said, said
        assert "is no URI" not in said, said
        assert "cannot be" not in said or "read" in said, said
    assert os.listdir(".") == []
    Place("s3://bucket/x").require("it", needs)
    Place("gs://bucket/x").require("it", needs)


@pytest.mark.parametrize("name", LOCAL)
def test_what_is_of_this_machine_refuses_a_uri(name: str, tmp_path: Path) -> None:
    (tmp_path / "drainer.toml").write_text(LOCAL[name].format("s3://bucket/x") + "\n")
    examined = config_command.examine(str(tmp_path / "drainer.toml"), "drainer", {})
    said = "; ".join(map(str, examined.problems))
    assert name in said
    assert "a path of this machine is expected, no URI" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "--archive", ARCHIVE, "--report", "s3://bucket/x.html"],
        ["flashback", "--archive", ARCHIVE, "--start", "1", "--file", "s3://bucket/x.sql"],
        ["stream", "--archive", ARCHIVE, "--to", DATABASE, "--checkpoint", "s3://bucket/x"],
    ],
    ids=lambda words: " ".join(words[:1]),
)
def test_files_of_this_machine_refuse_a_uri(arguments: list[str]) -> None:
    with pytest.raises(FlagError, match=r"URI|no such file system"):
        program.run(arguments)


@pytest.mark.parametrize("field", ["image", "archive"])
def test_a_restore_refuses_what_it_cannot_read(field: str) -> None:
    from drainer.config.options import DrainerConfig

    settings = DrainerConfig(db_type="mysql")
    given = {"image": "/nowhere", field: "nowhere://bucket/x"}
    with pytest.raises(ConfigError, match=f"-{field} nowhere://bucket/x: nowhere is no file system"):
        RestoreOptions(settings, **given).validate()  # type: ignore[arg-type]
