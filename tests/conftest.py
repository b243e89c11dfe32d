"""Fixtures that more than one room of tests needs: real servers and free ports."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from binlog_playground.cluster import etcd_server
from binlog_playground.cluster.mariadb import MariaDbServer
from tests import mariadb_state
from tests.architecture.source import ROOT
from tests.downstreams import server as server
from tests.downstreams import server_not_tidb as server_not_tidb
from tests.fakes import late_threads
from tests.fakes.etcd_keys import remove_keys
from tests.kafka_broker import _kafka_broker as _kafka_broker
from tests.kafka_broker import kafka_broker as kafka_broker
from tests.object_store import _gofakes3_port as _gofakes3_port
from tests.object_store import _s3_port as _s3_port
from tests.object_store import each_s3 as each_s3
from tests.object_store import s3 as s3
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.net.port import free_ports
from tidb_binlog.observe import log

STUCK_S = 1800
"""More than any test may take. Its own limit raises in it once; what then waits in its end, or in that of a
session's server, would wait for ever."""
_LONG = ["rig", "sim", "spark", "attacks", "deploy", "integration", "crash"]
"""Rooms with files that take minutes."""
_SESSION = re.compile(r"\b(spark: SparkSession|started: Started)\b")
_DOWNLOADS = re.compile(r"\b(spark_versions|mirror_lives)\b")
_DOWNLOADED = 0.35
"""Of all files, as many as take longer than other releases of Spark take to come."""
_SOURCES = re.compile(r"^from tests.architecture.source import .*\bmodules\b", re.MULTILINE)


def pytest_configure(config: pytest.Config) -> None:
    # A process that runs a part of the tests is told the width of a terminal that it does not have.
    # What a program has printed before it is killed must not be there on one machine alone.
    for name in ("COLUMNS", "LINES", "PYTHONUNBUFFERED"):
        os.environ.pop(name, None)
    # How much room a machine has left is nothing that a test may depend on.
    os.environ["PUMP_STOP_WRITE_AT_AVAILABLE_SPACE"] = "64 MiB"
    # What a shell starts with `&`, nohup or a CI ignores these, and so would every process that a test starts
    # and then interrupts. One with a handler of ours gives its children the default.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    logging.getLogger("asyncio").addFilter(_is_of_this_test)
    hypothesis.settings.register_profile("any machine", deadline=None)  # a loaded one is ten times slower
    hypothesis.settings.load_profile("any machine")
    if seed := os.environ.get(late_threads.SEED):
        config.pluginmanager.register(late_threads.LateThreads(seed))
    gc.disable()  # until all are collected: what is made until then stays
    if not config.getoption("numprocesses", None):  # not of a process that only waits for its workers
        config.pluginmanager.register(_Watch())
    elif config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        # They wait for it once they have collected all tests.
        threading.Thread(target=_prepare_spark, daemon=True).start()


def _prepare_spark() -> None:
    from tests.spark.support import spark_home, spark_versions  # of all only these need PySpark

    spark_home.environ()
    spark_versions.prefetch()


class _Watch:
    """A process in which no test begins any more shows where its threads stand, and ends: so its test fails
    by name, and all others run."""

    def pytest_runtest_logstart(self) -> None:
        faulthandler.dump_traceback_later(STUCK_S, exit=True, file=sys.__stderr__)


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for a core, since a third of their time is waiting; each has servers of its own, 2 GiB in all."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return max(2, min(2 * len(os.sched_getaffinity(0)), memory_gib // 2, 8))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return _Units(config, log) if config.getoption("dist") == "loadfile" else None


class _Units(LoadFileScheduling):
    """A process gets a unit at once."""

    def _split_scope(self, nodeid: str) -> str:
        return _unit(super()._split_scope(nodeid))


@cache
def _unit(path: str) -> str:
    """A file. Those with the session of Spark, which stands in the arguments of a test or a fixture, are one:
    each further process that starts and warms up a session takes half a minute of CPU, and its memory. So are
    those that parse all code."""
    text = (ROOT / path).read_text()
    if path.startswith("tests/spark/") and _SESSION.search(text):
        return "spark"
    return "architecture" if path.startswith("tests/architecture/") or _SOURCES.search(text) else path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What takes longest begins first, so that no process is alone with it at the end. What waits for real
    # servers stands evenly between what reckons, or the machine would first be too busy and then idle.
    files: dict[tuple[bool, str], list[pytest.Item]] = {}
    for item in items:
        waits = item.get_closest_marker("integration") is not None
        files.setdefault((waits, item.nodeid.partition("::")[0]), []).append(item)
    kinds = [sorted((file for file in files if file[0] is waits), key=_order) for waits in (False, True)]
    places = {file: place / len(kind) for kind in kinds for place, file in enumerate(kind)}
    places |= {
        file: max(place, _DOWNLOADED) for file, place in places.items() if _waits_for_downloads(file[1])
    }
    items[:] = [item for file in sorted(files, key=lambda file: places[file]) for item in files[file]]


def _waits_for_downloads(path: str) -> bool:
    return path.startswith("tests/spark/") and _DOWNLOADS.search((ROOT / path).read_text()) is not None


def _order(file: tuple[bool, str]) -> tuple[bool, int]:
    room = file[1].split("/")[1]
    return _unit(file[1]) != "spark", _LONG.index(room) if room in _LONG else len(_LONG)


def _is_of_this_test(record: logging.LogRecord) -> bool:
    """Not what grpcio says, in whichever test runs then, of a call whose test and loop have ended."""
    error = record.exc_info[1] if record.exc_info else None
    return "PollerCompletionQueue" not in record.getMessage() or "loop is closed" not in str(error)


@pytest.fixture(autouse=True)
def _restore_process() -> Iterator[None]:
    """What a command sets up for its own process does not outlive the test that calls it in this one."""
    root = logging.getLogger()
    level = root.level
    umask = os.umask(0o022)
    os.umask(umask)
    yield
    os.umask(umask)
    time.tzset()  # of TZ as it is again
    log.remove_handlers()
    root.setLevel(level)
    log.root().setLevel(logging.NOTSET)


@pytest.fixture(scope="module", autouse=True)
def _settled_heap() -> Iterator[None]:
    """What lives until the end (tests, modules, parsed sources) is a million objects, which each collection
    would look at again. What a module leaves open is found at its own end, not in the one that follows."""
    gc.collect()
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture(scope="session")
def _etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = etcd_server.EtcdServer.start(tmp_path_factory.mktemp("etcd"))
    try:
        yield server.endpoint
    finally:
        server.stop()


@pytest.fixture(scope="module")
def etcd(_etcd_server: str) -> str:
    """Endpoint of a real etcd that a module's tests share, empty when its first one begins: pumps of another
    module, registered for ever, would be this one's."""
    asyncio.run(_emptied(_etcd_server))
    return _etcd_server


@pytest.fixture
async def etcd_clean(etcd: str) -> str:
    """The same etcd, emptied before the test."""
    await _emptied(etcd)
    return etcd


async def _emptied(endpoint: str) -> None:
    client = await EtcdClient.connect(endpoint)
    await remove_keys(client, b"/")
    await client.close()


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Gives loopback ports that were free a moment ago."""
    return lambda: free_ports(1)[0]


@pytest.fixture(scope="session")
def _mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    server = MariaDbServer()
    server.start(tmp_path_factory.mktemp("db"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def mariadb(_mariadb_server: MariaDbServer) -> Iterator[MariaDbServer]:
    """A real MariaDB. Databases and accounts that a module leaves, and what it sets, are gone after it."""
    before = mariadb_state.look(_mariadb_server)
    yield _mariadb_server
    mariadb_state.restore(_mariadb_server, before)
