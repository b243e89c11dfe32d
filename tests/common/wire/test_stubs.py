"""Committed stubs are what the .proto files generate, and work with each protobuf that is allowed."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tests.architecture.source import ROOT

WIRE = ROOT / "common" / "tidb_binlog" / "wire"


def test_stubs_are_fresh(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools/proto.py"), "--out", str(tmp_path)], check=True)
    made = {path.name: path.read_bytes() for path in (tmp_path / "tidb_binlog/wire").iterdir()}
    kept = {
        path.name: path.read_bytes() for path in WIRE.iterdir() if path.name.endswith(("_pb2.py", "_pb2.pyi"))
    }
    # The generator's version stands in a comment and may differ by release.
    assert made.keys() == kept.keys()
    for name, content in made.items():
        if name.endswith(".py"):
            assert _descriptor(content) == _descriptor(kept[name]), f"{name}: run python tools/proto.py"


def _descriptor(source: bytes) -> list[bytes]:
    return [line for line in source.splitlines() if line.startswith(b"DESCRIPTOR = ")]


def allowed() -> Requirement:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (requirement,) = (one for one in map(Requirement, project["dependencies"]) if one.name == "protobuf")
    return requirement


def test_all_that_is_allowed_reads_the_stubs() -> None:
    """A stub works with what is as new as its protoc, up to the next major version: protobuf's guarantee."""
    bounds = {one.operator: Version(one.version) for one in allowed().specifier}
    stubs = sorted(WIRE.glob("*_pb2.py"))
    assert len(stubs) > 8
    for stub in stubs:
        numbers = re.search(r"Domain\.PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+),", stub.read_text())
        assert numbers is not None, stub
        made_for = Version(".".join(numbers.groups()))
        assert made_for <= bounds[">="], f"{stub.name} needs a newer protobuf than the oldest that is allowed"
        assert bounds["<"] == Version(str(made_for.major + 2)), f"{stub.name}: the next major is the last"


def test_the_tests_run_with_the_newest_major_version_that_is_allowed() -> None:
    installed = Version(importlib.metadata.version("protobuf"))
    assert installed in allowed().specifier
    assert f"<{installed.major + 1}" in str(allowed().specifier)
