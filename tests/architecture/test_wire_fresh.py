"""Committed stubs are what the .proto files generate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.source import ROOT


def test_stubs_are_fresh(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, str(ROOT / "tools/proto.py"), "--out", str(tmp_path)]
    subprocess.run(command, check=True, env=environment)
    made = {path.name: path.read_bytes() for path in (tmp_path / "tidb_binlog/wire").iterdir()}
    kept = {
        path.name: path.read_bytes()
        for path in (ROOT / "common/tidb_binlog/wire").iterdir()
        if path.name.endswith(("_pb2.py", "_pb2.pyi"))
    }
    # The generator's version stands in a comment and may differ by release.
    assert made.keys() == kept.keys()
    for name, content in made.items():
        if name.endswith(".py"):
            assert _descriptor(content) == _descriptor(kept[name]), f"{name}: run python tools/proto.py"


def _descriptor(source: bytes) -> list[bytes]:
    return [line for line in source.splitlines() if line.startswith(b"DESCRIPTOR = ")]
