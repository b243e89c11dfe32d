"""What each command imports: packages, and parts of this project, that it has to do without.

Each runs as its users run it, until it is up or done, and says at its end which modules it has.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from binlogctl.cli.commands import worded
from tests.integration.support import drainer_command

WINGS: Final = {"drainer", "pump", "pumpclient", "binlog_playground"}
DATA: Final = {
    "deltalake",
    "duckdb",
    "numpy",
    "grpc",
    "obstore",
    "pandas",
    "polars",
    "pyarrow",
    "pyiceberg",
    "pyspark",
}
KAFKA: Final = {"confluent_kafka", "fastavro"}
DATABASE: Final = {"cryptography", "pymysql"}
SELDOM: Final = {
    "difflib",
    "importlib.metadata",
    "matplotlib",
    "rich",
    "shtab",
    "tidb_binlog.page",
    "zoneinfo",
    "zstandard",
}
SERVER: Final = {"google_crc32c", "h11", "plyvel", "prometheus_client", "tidb_binlog.door"}
NETWORK: Final = {"google.protobuf", "msgspec", "tidb_binlog.etcd", "tidb_binlog.net"}
LOOP: Final = {"asyncio", "uvloop"}

NODE: Final = DATA | KAFKA | SELDOM
ALONE: Final = WINGS | NODE | DATABASE | SERVER | NETWORK
CALLER: Final = WINGS | DATA | KAFKA | DATABASE | SERVER | {"matplotlib", "shtab", "zstandard"}

PROGRAM: Final = """\
import atexit, contextlib, importlib, sys
atexit.register(lambda: print(*sys.modules, file=open({file!r}, "w")))
for argv in {calls!r}:
    sys.argv = ["command", *argv]
    with contextlib.suppress(SystemExit):
        importlib.import_module({module!r}).main()
"""


def imported(directory: Path, module: str, *argv: str, up: str = "") -> set[str]:
    """Modules of a command whose `main` is in `module`. `up`: what its log says when it can be ended."""
    return imported_by_all(directory, module, [argv], up)


def imported_by_all(directory: Path, module: str, calls: list[Sequence[str]], up: str = "") -> set[str]:
    """The same of commands, one after the other in a process."""
    file = directory / "modules"
    program = PROGRAM.format(file=str(file), calls=calls, module=module)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if up and up in line:
                process.terminate()
    assert up in "".join(said), "".join(said)
    return set(file.read_text().split())


def assert_without(modules: set[str], unwanted: set[str]) -> None:
    assert sorted(modules & unwanted) == []


@pytest.mark.parametrize("module", ["binlogctl", "pump", "drainer", "drainer.reparo", "binlog_playground"])
def test_the_version_needs_nothing(module: str, tmp_path: Path) -> None:
    modules = imported(tmp_path, f"{module}.__main__", "--version")
    assert_without(modules, ALONE - WINGS | LOOP | {"dataclasses", "logging"})


def test_help_needs_the_command_line_alone(tmp_path: Path) -> None:
    calls: list[Sequence[str]] = [[*command.words.split(), "--help"] for command in worded()]
    assert len(calls) > 20
    assert_without(imported_by_all(tmp_path, "binlogctl.__main__", calls), ALONE)


def test_a_library_costs_what_is_used_of_it() -> None:
    def after(program: str) -> set[str]:
        tail = "; import sys; print(*sys.modules)"
        return set(subprocess.check_output([sys.executable, "-c", program + tail], text=True).split())

    assert_without(after("import drainer"), ALONE - {"drainer"})
    assert_without(after("import pumpclient"), CALLER - {"pumpclient"} | SELDOM)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("argv", "without"),
    [
        (["status"], CALLER),
        (["status", "-output=json"], CALLER | {"rich"}),
        (["nodes"], CALLER),
        (["-cmd=pumps"], CALLER | {"rich"}),
        (["position", "now"], ALONE),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "without",
)
def test_a_question_to_the_cluster(argv: list[str], without: set[str], etcd: str, tmp_path: Path) -> None:
    connection = [] if argv[0] == "position" else [f"-pd-urls={etcd}"]
    assert_without(imported(tmp_path, "binlogctl.__main__", *argv, *connection), without)


@pytest.mark.integration
def test_a_pump(etcd_clean: str, tmp_path: Path, free_port: Callable[[], int]) -> None:
    argv = [f"-addr=127.0.0.1:{free_port()}", f"-pd-urls={etcd_clean}", f"-data-dir={tmp_path / 'data'}"]
    modules = imported(tmp_path, "pump.__main__", *argv, up="pump is up")
    assert_without(modules, WINGS - {"pump"} | NODE | DATABASE | {"tidb_binlog.rowcodec.plan", "tomllib"})


@pytest.mark.integration
def test_a_drainer_to_a_database(
    etcd_clean: str, tmp_path: Path, free_port: Callable[[], int], mariadb: MariaDbServer
) -> None:
    toml = drainer_command.downstream(mariadb)
    argv = drainer_command.command(tmp_path, etcd_clean, free_port(), toml)[:-1]
    try:
        modules = imported(tmp_path, "drainer.__main__", *argv, up="drainer is up")
    finally:
        connection = mariadb.connect()
        connection.cursor().execute("DROP DATABASE IF EXISTS tidb_binlog")
        connection.close()
    assert_without(modules, WINGS - {"drainer"} | NODE | {"drainer.lake", "drainer.reading", "drainer.spark"})


@pytest.mark.integration
def test_a_drainer_to_files(etcd_clean: str, tmp_path: Path, free_port: Callable[[], int]) -> None:
    toml = '[syncer]\ndb-type = "file"\n'
    argv = drainer_command.command(tmp_path, etcd_clean, free_port(), toml)[:-1]
    modules = imported(tmp_path, "drainer.__main__", *argv, up="drainer is up")
    rest = NODE - {"zstandard"} | {"drainer.lake", "drainer.reading"}
    assert_without(modules, WINGS - {"drainer"} | DATABASE | rest)
