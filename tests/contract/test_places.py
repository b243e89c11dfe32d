"""What a user names as a place, by every command and key: what cannot be done there is refused before
anything is written, and a path or URI that can be used is not."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from binlogctl.cli import command_line
from binlogctl.commands import config as config_command
from drainer.places import place as places
from drainer.places.place import CREATE, READ, WRITE, Ability, Place
from drainer.points.restore.options import RestoreOptions
from drainer.reparo.options import ReparoConfig
from drainer.spark import program
from tidb_binlog.config import loading
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
    "stream --archive": (READ, ["stream", "--to", DATABASE, "--checkpoint", "/nowhere/c", "--archive", "{}"]),
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
CTL: dict[str, tuple[Ability, list[str]]] = {
    "verify -image": (READ, ["verify", "-image", "{}"]),
    "verify -archive": (READ, ["verify", "-archive", "{}"]),
    "restore -image": (READ, ["restore", "-image", "{}"]),
    "restore -archive": (READ, ["restore", "-image", "/nowhere", "-archive", "{}"]),
    "load -dir": (WRITE | CREATE, ["load", "-to", "archive", "-dir", "{}"]),
}
KEYS: dict[str, tuple[Ability, str]] = {
    "syncer.to.dir": (WRITE | CREATE, 'db-type = "file"\n[syncer.to]\ndir = "{}"'),
    "syncer.to.warehouse": (READ, 'db-type = "delta"\n[syncer.to]\nwarehouse = "{}"'),
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


async def called(words: list[str]) -> None:
    """A command of binlogctl."""
    call = command_line.parse(words, {})
    assert isinstance(call, command_line.Call)
    await importlib.import_module(f"binlogctl.commands.{words[0]}").run(call)


def of_ctl(name: str, tmp_path: Path) -> Ask:
    file = tmp_path / "drainer.toml"
    file.write_text('pd-urls = "127.0.0.1:1"\n[syncer]\ndb-type = "mysql"\n')

    def ask(where: str) -> str:
        """There is no cluster, and nothing is asked of one before."""
        words = [word.format(where) for word in CTL[name][1]]
        with pytest.raises(BinlogError) as refused:
            asyncio.run(called([*words, "-drainer-config", str(file)]))
        return str(refused.value)

    return ask


def of_reparo(where: str) -> str:
    try:
        loading.load(ReparoConfig, ["-data-dir", where], {}, program="reparo", env_prefix="REPARO")
    except ConfigError as refused:
        return str(refused)
    return ""


def of_key(name: str, tmp_path: Path) -> Ask:
    def ask(where: str) -> str:
        (tmp_path / "drainer.toml").write_text(f"[syncer]\n{KEYS[name][1].format(where)}\n")
        examined = config_command.examine(str(tmp_path / "drainer.toml"), "drainer", {})
        return "; ".join(map(str, examined.problems))

    return ask


@pytest.fixture(params=[*COMMANDS, *CTL, *KEYS, "reparo -data-dir"])
def option(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Ability, Ask]:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    name = request.param
    if name in COMMANDS:
        return COMMANDS[name][0], of_command(name)
    if name in CTL:
        return CTL[name][0], of_ctl(name, tmp_path)
    if name not in KEYS:
        return READ, of_reparo
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
    assert f"{missing} is not installed" in (said := ask("s3://bucket/x"))
    assert "(pip install" in said
    assert os.listdir(".") == []


def test_what_can_be_used_is_not(option: tuple[Ability, Ask], tmp_path: Path) -> None:
    """What is said then is of what is there, not of how it is named."""
    needs, ask = option
    forms = ["relative/x", str(tmp_path / "absolute" / "x"), (tmp_path / "uri" / "x").as_uri()]
    for where in forms:
        said = ask(where)
        assert "file system" not in said, said
        assert "is no URI" not in said, said
        assert ":// cannot be" not in said, said
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
        ["package", "--to", "s3://bucket/x"],
        ["stats", "--archive", ARCHIVE, "--metrics", "s3://bucket/x.prom"],
        ["load", "--config", "s3://bucket/x"],
    ],
    ids=lambda words: " ".join(words[:1]),
)
def test_files_of_this_machine_refuse_a_uri(arguments: list[str]) -> None:
    with pytest.raises(FlagError, match=r"URI|no such file system|of this machine|neither FILE.prom"):
        program.run(arguments)


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "-report", "s3://bucket/x"],
        ["verify", "-repair", "s3://bucket/x"],
        ["verify", "-state", "s3://bucket/x"],
        ["restore", "-archive", ARCHIVE, "-backup", "s3://bucket/x"],
        ["savepoint", "from-br", "s3://bucket/x"],
        ["savepoint", "from-dumpling", "s3://bucket/x"],
        ["savepoint", "at", "408012454863044609", "-data-dir", "s3://bucket/x"],
        ["config", "check", "s3://bucket/x"],
    ],
    ids=" ".join,
)
async def test_files_of_an_operators_host_refuse_a_uri(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "drainer.toml").write_text('[syncer]\ndb-type = "mysql"\n')
    given = ["-drainer-config", str(tmp_path / "drainer.toml")] if words[0] in ("verify", "restore") else []
    with pytest.raises(FlagError, match="a path of this machine is expected, no URI"):
        await called([*words, *given])


@pytest.mark.parametrize("field", ["image", "archive"])
def test_a_restore_refuses_what_it_cannot_read(field: str) -> None:
    from drainer.config.options import DrainerConfig

    settings = DrainerConfig(db_type="mysql")
    given = {"image": "/nowhere", field: "nowhere://bucket/x"}
    with pytest.raises(ConfigError, match=f"-{field} nowhere://bucket/x: nowhere is no file system"):
        RestoreOptions(settings, **given).validate()  # type: ignore[arg-type]
