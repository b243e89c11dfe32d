"""A release: its number stands in one place, and the texts that come with it know it."""

from __future__ import annotations

import re
import tomllib

from tests.architecture.source import ROOT, modules
from tidb_binlog import version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
SECURITY = (ROOT / "SECURITY.md").read_text()


def test_packaging_reads_the_number_from_the_code() -> None:
    assert "version" not in PROJECT["project"]
    source = PROJECT["tool"]["hatch"]["version"]
    read = re.search(source["pattern"], (ROOT / source["path"]).read_text())
    assert read is not None
    assert read["version"] == version.VERSION
    assert re.fullmatch(r"\d+\.\d+\.\d+", version.VERSION)
    assert version.text().startswith(f"Release Version: v{version.VERSION}\n")


def test_the_changelog_begins_with_this_release() -> None:
    headings = re.findall(r"^## \[(.+?)\]", CHANGELOG, re.M)
    assert headings[:2] == ["Unreleased", version.VERSION]
    kinds = re.findall(r"^### (.+)$", CHANGELOG, re.M)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_this_release_gets_security_fixes() -> None:
    line = version.VERSION.rpartition(".")[0]
    assert f"| {line}.x | yes |" in SECURITY


def test_floors_leave_out_releases_with_known_vulnerabilities() -> None:
    """What SECURITY.md says of them is what is required."""
    extras = PROJECT["project"]["optional-dependencies"]
    required = "\n".join([*PROJECT["project"]["dependencies"], *extras["subscribe"], *extras["server"]])
    floors = dict(re.findall(r"^([A-Za-z0-9-]+)>=([\d.]+)", required, re.M))
    told = dict(re.findall(r"^- (\S+) ([\d.]+) \(CVE-", SECURITY, re.M))
    assert set(told) >= {"h11", "PyMySQL", "cryptography", "protobuf"}
    assert told == {name: floors[name] for name in told}


def test_nothing_parses_json_with_protobuf() -> None:
    """As SECURITY.md says of its known fault."""
    callers = [module.name for module in modules() if "json_format" in module.path.read_text()]
    assert callers == []
