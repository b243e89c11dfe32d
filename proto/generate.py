"""Generate common/wire/*_pb2.py and *_pb2.pyi from the .proto files beside this script.

The only way stubs are made: `python proto/generate.py`. With `--out DIR` they go below DIR instead,
which is how a test checks that the committed ones are fresh.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def generate(out: Path) -> int:
    """Compile every .proto below this directory into `out`; the exit status of protoc."""
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(HERE)) for path in HERE.rglob("*.proto"))
    out.mkdir(parents=True, exist_ok=True)
    status: int = protoc.main(
        ["protoc", f"-I{HERE}", f"--python_out={out}", f"--mypy_out=quiet:{out}", *sources]
    )
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent, help="root that receives common/wire")
    return generate(parser.parse_args().out)


if __name__ == "__main__":
    sys.exit(main())
