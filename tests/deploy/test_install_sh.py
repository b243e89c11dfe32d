"""Which interpreter `deploy/install.sh` takes, and what it says where there is none for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "install.sh"


class Run(Protocol):
    def __call__(self, pythons: dict[str, str], *, python: str = "") -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def which(tmp_path: Path) -> Run:
    """The script on a system that has only these interpreters, by name and version."""

    def which(pythons: dict[str, str], *, python: str = "") -> subprocess.CompletedProcess[str]:
        for name in ("sh", "dirname"):
            (tmp_path / name).symlink_to(str(shutil.which(name)))
        for name, version in pythons.items():
            (tmp_path / name).write_text(
                f"#!/bin/sh\necho {version}\n" if version else "#!/bin/sh\nexit 127\n"
            )
            (tmp_path / name).chmod(0o755)
        environ = {"PATH": str(tmp_path), **({"PYTHON": python} if python else {})}
        return subprocess.run(
            ["sh", SCRIPT, "which-python"], env=environ, capture_output=True, text=True, check=False
        )

    return which


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": "3.12", "python3.13": "3.13"}, "python3"),
        ({"python3": "3.15", "python3.13": "3.13", "python3.11": "3.11"}, "python3.13"),
        ({"python3": "3.10", "python3.14": "3.14", "python3.12": "3.12"}, "python3.14"),
        ({"python3": "", "python3.11": "3.11"}, "python3.11"),
        ({"python3.13": "", "python3.12": "3.12"}, "python3.12"),
    ],
)
def test_the_system_s_python_else_the_newest_with_wheels(
    which: Run, pythons: dict[str, str], chosen: str, tmp_path: Path
) -> None:
    done = which(pythons)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / chosen}\n"), done.stderr


def test_the_one_that_is_named(which: Run, tmp_path: Path) -> None:
    given = {"python3": "3.11", "python3.13": "3.13"}
    assert which(given, python="python3.13").stdout == f"{tmp_path / 'python3.13'}\n"


@pytest.mark.parametrize(
    ("pythons", "named", "said"),
    [
        ({"python3": "3.10"}, "", "python3 is 3.10"),
        ({"python3": "3.15"}, "", "python3 is 3.15"),
        ({}, "", "python3 does not run"),
        ({"python3": "3.12", "python3.10": "3.10"}, "python3.10", "python3.10 is 3.10"),
        ({"python3": "3.12"}, "/no/python", "/no/python does not run"),
    ],
)
def test_none_that_fits_is_one_line(which: Run, pythons: dict[str, str], named: str, said: str) -> None:
    done = which(pythons, python=named)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("setup: Python 3.11 to 3.14 is needed")
    assert f"and {said};" in line
    assert "PYTHON=/path/to/python3.13 make setup" in line


def test_the_versions_are_those_of_the_package() -> None:
    found = re.search(r'^SUPPORTED="(.*)"$', SCRIPT.read_text(), re.M)
    assert found is not None
    classified = re.findall(
        r"Programming Language :: Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text()
    )
    assert sorted(found[1].split()) == sorted(classified)


def test_the_checkout_is_compiled() -> None:
    found = re.search(r"^\.venv/bin/python -m compileall -q (.*)$", SCRIPT.read_text(), re.M)
    assert found is not None
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    folders = {name for name in build["targets"]["sdist"]["only-include"] if (ROOT / name).is_dir()}
    assert set(found[1].split()) == folders


def test_make_lets_python_keep_its_bytecode() -> None:
    """Without it each process of the tests would compile all that it imports."""
    told = ["make", "-s", "--eval", "told: ; @printenv PYTHONDONTWRITEBYTECODE || echo unset", "told"]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    assert (
        subprocess.run(told, cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout
        == "unset\n"
    )


def test_what_takes_long_says_that_it_is_at_work_and_how_it_ended(tmp_path: Path) -> None:
    """Its seconds pass at once here."""
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    (tmp_path / "sleep").chmod(0o755)
    (function,) = re.findall(r"^(patiently\(\) \{\n.*?\n\})$", SCRIPT.read_text(), re.MULTILINE | re.DOTALL)
    script = f"""set -eu
say() {{ echo "setup: $*" > {tmp_path}/said; }}
{function}
long() {{ until [ -s {tmp_path}/said ]; do :; done; return 7; }}
patiently "installing" long || echo "ended with $?"
"""
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "ended with 7\n", done.stderr
    assert re.fullmatch(r"setup: installing, for \d+0 s\n", (tmp_path / "said").read_text())
