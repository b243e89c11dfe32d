"""Proto: generate common/tidb_binlog/wire/*_pb2.py and *_pb2.pyi from the .proto files of proto/.

The only way stubs are made: `python tools/proto.py`. With `--out DIR` they go below DIR instead,
which is how a test checks that the committed ones are fresh. Stubs work with the protobuf that protoc was
made with, all newer ones, and all of the next major version: protoc 30 is the oldest that says 6.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"


def generate(out: Path) -> int:
    """Compile every .proto of proto/ into `out`; the exit status of protoc."""
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    out.mkdir(parents=True, exist_ok=True)
    programs = Path(sys.executable).parent  # protoc, and the plugin that it looks for
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    command = [
        str(programs / "protoc"),
        f"-I{PROTO}",
        f"--python_out={out}",
        f"--mypy_out=quiet:{out}",
        *sources,
    ]
    return subprocess.run(command, check=False, env={**os.environ, "PATH": path}).returncode


def main() -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "common", help="root that receives tidb_binlog/wire"
    )
    return generate(parser.parse_args().out)


if __name__ == "__main__":
    sys.exit(main())
