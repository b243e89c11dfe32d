"""Whose file it is: by its keys, then by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogctl.commands.config import examine
from tidb_binlog.errors import ConfigError

SHARED = """addr = "0.0.0.0:8250"
advertise-addr = "10.0.0.11:8250"
pd-urls = "http://10.0.0.1:2379"
data-dir = "/var/lib/tidb-binlog/pump"
"""


@pytest.mark.parametrize(("name", "kind"), [("pump.toml", "pump"), ("drainer-2.toml", "drainer")])
def test_a_file_of_keys_that_both_have_is_what_its_name_says(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    path.write_text(SHARED)
    examined = examine(str(path), "", {})
    assert (examined.kind, examined.problems) == (kind, ())


@pytest.mark.parametrize("name", ["node.toml", "pump-or-drainer.toml"])
def test_a_name_that_says_nothing_is_asked_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(SHARED)
    with pytest.raises(ConfigError, match="may be a pump's or a drainer's file"):
        examine(str(path), "", {})
    assert examine(str(path), "pump", {}).kind == "pump"


def test_keys_count_before_the_name(tmp_path: Path) -> None:
    path = tmp_path / "pump.toml"
    path.write_text(SHARED + '[syncer]\ndb-type = "mysql"\n[syncer.to]\nhost = "h"\n')
    assert examine(str(path), "", {}).kind == "drainer"


@pytest.mark.parametrize(
    ("rule", "wrong"), [('action = "jump"', "ddl-rule"), ('where = "id >"\ndb-name = "a"', "ddl-rule")]
)
def test_rules_of_ddl_are_read_as_the_drainer_reads_them(tmp_path: Path, rule: str, wrong: str) -> None:
    path = tmp_path / "drainer.toml"
    path.write_text(f"[[syncer.ddl-rule]]\n{rule}\n")
    (problem,) = examine(str(path), "", {}).problems
    assert wrong in problem.message
