"""Release check: builds what is published, installs it as users do, and lists what is in it.

    make release-check       build/release/ then has the sdist, the wheel and the SBOM (CycloneDX, JSON)

In     the checkout; a package index for the packages that the wheel requires
Holds  the wheel is made of the sdist, has the packages of pyproject.toml at its top and nothing else, comes
       from an index, and each of its commands starts
Tests  tests/deploy/test_packages.py
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tidb_binlog.observe import show
from tidb_binlog.version import VERSION

ROOT: Final = Path(__file__).parents[1]
OUT: Final = ROOT / "build" / "release"
NAME: Final = "tidb-binlog"
EXTRA: Final = "server"
"""What the SBOM is of: the requirements of Pumps and Drainers."""


class NotReleasable(Exception):
    """What is wrong, in a line."""


def pyproject() -> dict[str, Any]:
    """Of the checkout."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(command: Sequence[object], cwd: Path) -> str:
    """Its output. Without what the environment would add to Python. Raises `NotReleasable`."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReleasable(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def built(kind: str, tree: Path, out: Path) -> Path:
    """The sdist or the wheel that the build backend makes of a tree, alone in `out`."""
    run([sys.executable, "-c", f"from hatchling import build; build.build_{kind}({str(out)!r})"], tree)
    (file,) = out.iterdir()
    return file


def unpack(sdist: Path, out: Path) -> None:
    """By tar: Python's own unpacks safely from 3.11.4 on only."""
    run(["tar", "-xzf", sdist], out)


def build(out: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made of it, in `out`."""
    with tempfile.TemporaryDirectory() as scratch:
        places = [Path(scratch) / name for name in ("sdist", "tree", "wheel")]
        for place in places:
            place.mkdir()
        sdist = built("sdist", ROOT, places[0])
        unpack(sdist, places[1])
        (tree,) = places[1].iterdir()
        wheel = built("wheel", tree, places[2])
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(sdist, out)), Path(shutil.copy(wheel, out))


def check_top_level(wheel: Path) -> None:
    """Raises `NotReleasable`."""
    packages = pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    expected = {PurePosixPath(package).name for package in packages} | {f"tidb_binlog-{VERSION}.dist-info"}
    with zipfile.ZipFile(wheel) as packed:
        there = {name.partition("/")[0] for name in packed.namelist()}
    if there != expected:
        raise NotReleasable(f"the top of {wheel.name} is {sorted(there)}, not {sorted(expected)}")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def index_of(files: Sequence[Path]) -> Iterator[str]:
    """The URL of a package index that has these and nothing else: lists of a directory are pages of links."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "simple" / NAME
        project.mkdir(parents=True)
        for file in files:
            shutil.copy(file, project)
        serve = functools.partial(_Quiet, directory=scratch)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/simple/"
            finally:
                server.shutdown()


def pip(python: Path, *words: object) -> None:
    """This environment's pip, for another one. Raises `NotReleasable`."""
    run([sys.executable, "-m", "pip", "--python", python, "-q", "install", *words], python.parent)


def check_installed(files: Sequence[Path], python: Path) -> None:
    """Install from an index into the environment of `python`, without what the wheel requires. Raises
    `NotReleasable`."""
    with index_of(files) as index:
        wanted = f"{NAME}=={VERSION}"
        pip(python, "--no-deps", "--force-reinstall", "--no-cache-dir", "--index-url", index, wanted)
    told = run(
        [python, "-c", f"import importlib.metadata as m; print(m.version({NAME!r}))"], python.parent
    ).strip()
    if told != VERSION:
        raise NotReleasable(f"the index gave {told}, not {VERSION}")


def check_commands(python: Path) -> None:
    """Each starts, and tells its release. Raises `NotReleasable`."""
    for name in pyproject()["project"]["scripts"]:
        said = run([python.parent / name, "--version"], python.parent)
        if not said.startswith(f"Release Version: v{VERSION}\n"):
            raise NotReleasable(f"{name} --version says {said!r}")


def write_sbom(python: Path, file: Path) -> None:
    """All that is installed in the environment of `python`, by CycloneDX's schema. Raises `NotReleasable`."""
    words = [
        "environment",
        "--pyproject",
        ROOT / "pyproject.toml",
        "--output-reproducible",
        "-o",
        file,
        python,
    ]
    run([Path(sys.executable).parent / "cyclonedx-py", *words], ROOT)
    document = json.loads(file.read_text())
    document["metadata"]["component"]["version"] = VERSION  # pyproject.toml says that the code has it
    file.write_text(json.dumps(document, indent=2) + "\n")


def main() -> int:
    """Run all of it; the exit status."""
    shutil.rmtree(OUT, ignore_errors=True)
    try:
        files = build(OUT)
        check_top_level(files[1])
        with tempfile.TemporaryDirectory() as scratch:
            venv.create(scratch, symlinks=True)
            python = Path(scratch) / "bin" / "python"
            check_installed(files, python)
            pip(python, f"{NAME}[{EXTRA}]=={VERSION}")
            check_commands(python)
            sbom = OUT / f"tidb_binlog-{VERSION}.cdx.json"
            write_sbom(python, sbom)
    except NotReleasable as error:
        show.print_warning(f"release-check: {error}")
        return 1
    show.print_lines(*(path.relative_to(ROOT).as_posix() for path in (*files, sbom)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
