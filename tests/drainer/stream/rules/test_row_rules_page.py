"""docs/row-rules.md: every rule, condition, function, command and message in it, as it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.config.options import DrainerConfig
from drainer.stream.rules.row_rule import compile_where
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.stream.rules.where import expression as parser
from drainer.stream.translate.row_edit import row_edit
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion
from tests.common.rowcodec.tables import key, table
from tests.common.rowcodec.tables import kind as of_type
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.table_info import TableInfo

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "row-rules.md").read_text()
CUSTOMER = table(
    ("id", key("bigint")),
    ("country", of_type("varchar", flen=2)),
    ("deleted_at", of_type("datetime")),
    ("email", of_type("varchar", flen=80)),
    ("phone", of_type("varchar", flen=20)),
    ("note", of_type("varchar", flen=20)),
)
ORDER = table(
    ("id", key("bigint")),
    ("total", of_type("decimal", flen=10, decimal=2)),
    ("note", of_type("varchar", flen=20)),
    ("email", of_type("varchar", flen=80)),
    ("born", of_type("date")),
    ("state", of_type("enum", elems=("draft", "paid"))),
    ("order", of_type("int")),
    ("changed_at", of_type("timestamp")),
    ("size", of_type("double")),
    ("country", of_type("varchar", flen=2)),
    ("deleted_at", of_type("datetime")),
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the salt, and the module of the page's function where modules are found."""
    (tmp_path / "salt").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "shop_rules.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def placed(block: str, directory: Path) -> str:
    return block.replace("/etc/tidb-binlog/salt", str(directory / "salt"))


def rules(block: str, directory: Path) -> Rules:
    given = tomllib.loads(placed(block, directory))["syncer"]["row-rule"]
    return read_rules(replace(DrainerConfig(), row_rule=tuple(given)))


def customer(info: TableInfo = CUSTOMER) -> TableVersion:
    return TableVersion(info, "shop", "customer", 1)


def row(**values: Any) -> dict[str, Any]:
    image = {
        "id": 1,
        "country": "DE",
        "deleted_at": None,
        "email": "A@b.c",
        "phone": "0123456789",
        "note": "x",
    }
    return {**image, **values}


def test_the_first_rules(directory: Path) -> None:
    found = rules(blocks("toml")[0], directory)
    edit = row_edit(found, customer())
    assert edit is not None
    encoder, plan = RowEncoder(CUSTOMER), compile_table(CUSTOMER)
    event = edit.event(INSERT, encoder.insert(row()), 5)
    assert event is not None
    _, country, _, email, phone, note = plan.decode_insert(event[1])
    assert (country, phone, note) == ("DE", "******6789", None)
    assert re.fullmatch(r"[0-9a-f]{32}", email)
    inside, outside = row(), row(country="US")
    kinds = {
        (was, now): edit.event(UPDATE, encoder.update(was_row, now_row), 5)
        for was, was_row in (("meets it", inside), ("does not", outside))
        for now, now_row in (("meets it", inside), ("does not", outside))
    }
    shown = {pair: "nothing" if event is None else event[0] for pair, event in kinds.items()}
    table_rows = re.findall(r"^\| (meets it|does not) \| (meets it|does not) \| (.*?) \|$", PAGE, re.M)
    said = {"the update": UPDATE, "a delete of the row before": DELETE, "an insert of the row after": INSERT}
    assert shown == {(was, now): said.get(what, what) for was, now, what in table_rows}
    assert row_edit(found, TableVersion(ORDER, "shop", "order_7", 1)) is not None
    assert row_edit(found, TableVersion(ORDER, "shop", "old_order_7", 1)) is None


def test_every_condition_is_one(directory: Path) -> None:
    (block,) = blocks("sql")
    assert len(block.splitlines()) == 6
    for line in block.splitlines():
        compile_where(line).of(ORDER, "shop.order_1")


def test_the_grammar_is_the_parsers() -> None:
    def rule(text: str, name: str) -> str:
        found = re.search(rf"^    {name} +:= (.*?)(?=^    \w+ +:=|\n\n|\Z)", text + "\n\n", re.M | re.S)
        assert found, name
        return " ".join(found[1].split())

    for name in ("condition", "predicate", "operand"):
        assert rule(PAGE, name) == rule(str(parser.__doc__), name)


def test_the_function(directory: Path) -> None:
    edit = row_edit(rules(blocks("toml")[1], directory), customer())
    assert edit is not None
    encoder = RowEncoder(CUSTOMER)
    for kind in (INSERT, UPDATE, DELETE):
        made = {INSERT: encoder.insert, UPDATE: lambda one: encoder.update(one, one), DELETE: encoder.delete}[
            kind
        ]
        assert edit.event(kind, made(row()), 5) == (kind, made(row(email="a@b.c")))
        assert edit.event(kind, made(row(email="ann@shop.example")), 5) is None
        assert edit.event(kind, made(row(email=None)), 5) == (kind, made(row(email=None)))


def test_the_message_after_a_ddl(directory: Path) -> None:
    renamed = table(
        ("id", key("bigint")), ("email", of_type("varchar")), ("land", of_type("varchar", flen=2))
    )
    with pytest.raises(ConfigError) as raised:
        row_edit(rules(blocks("toml")[0], directory), customer(renamed))
    assert [f"{raised.value}\n"] == blocks("text")


def test_the_commands(directory: Path) -> None:
    (block,) = blocks("sh")
    make_salt, check = block.splitlines()
    (directory / "salt").unlink()
    subprocess.run(placed(make_salt, directory), shell=True, check=True)
    text = "\n".join(placed(block, directory) for block in blocks("toml"))
    (directory / "drainer.toml").write_text(text)
    program = Path(sys.executable).parent / "binlogctl"

    def run() -> subprocess.CompletedProcess[str]:
        words = [str(program), *shlex.split(check)[1:]]
        environ = {"PYTHONPATH": f"{directory}:{ROOT}", "PATH": "/usr/bin:/bin"}
        return subprocess.run(words, cwd=directory, env=environ, capture_output=True, text=True)

    done = run()
    assert (done.returncode, done.stdout) == (0, "drainer.toml is right for a drainer\n"), done
    (directory / "drainer.toml").write_text(text.replace("country IN (", "country IN ("[:-1]))
    done = run()
    assert done.returncode == 1
    assert "`row-rule` 1: where: at character 12: `(` is expected" in done.stdout
