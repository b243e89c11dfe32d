"""What goes to the nodes of a cluster can be imported there from the zip alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from drainer.spark import packaging
from tests.waiting import PATIENCE_S


def test_the_package_is_imported_from_the_zip_and_nowhere_else(tmp_path: Path) -> None:
    path = packaging.package(tmp_path)
    names = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        "import tidb_binlog.tso, drainer.formats.pb, drainer.spark.packaging as here\n"
        "print(here.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", names], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert found.stdout.strip() == f"{path}/drainer/spark/packaging.py", found.stderr


def test_two_zips_of_the_same_sources_are_equal(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, second = packaging.package(tmp_path), packaging.package(tmp_path / "again")
    assert first.read_bytes() == second.read_bytes()


def test_the_script_starts_the_program(tmp_path: Path) -> None:
    source = packaging.script(tmp_path).read_text()
    compile(source, "script", "exec")
    assert "drainer.spark.__main__" in source
