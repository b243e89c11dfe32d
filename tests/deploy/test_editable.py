"""A checkout that is installed can be type checked against from anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_type_checkers_find_the_packages_beside_an_editable_install(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import drainer\nimport pumpclient\ndrainer.subscrbe, drainer.subscribe_sync\n")
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--follow-imports=silent",
            "--cache-dir",
            ROOT / ".mypy_cache",
            program,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Found 1 error" in found.stdout, found.stdout
    assert 'error: Module has no attribute "subscrbe"' in found.stdout
