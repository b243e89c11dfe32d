"""A checkout that is installed can be type checked against from anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFIG = """\
[mypy]
follow_imports = skip
[mypy-drainer,pumpclient]
follow_imports = silent
"""
"""Without all that they import, which is a quarter of a minute."""


def test_type_checkers_find_the_packages_beside_an_editable_install(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(CONFIG)
    program = tmp_path / "program.py"
    program.write_text("import drainer\nimport pumpclient\ndrainer.subscrbe, drainer.subscribe_sync\n")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "Found 1 error" in found.stdout, found.stdout
    assert 'error: Module has no attribute "subscrbe"' in found.stdout
