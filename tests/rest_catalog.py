"""A catalog server of Iceberg that tests write through: the REST server of Iceberg's own tests, as a process.

Its packages come from Maven once, 40 MB, into build/spark; where they cannot be had, or there is no Java, a
test that asks for it is skipped and says so. Two are classes of Iceberg's tests, which Maven's clients do not
ask for by name alone: they are fetched from where the others came from.
"""

from __future__ import annotations

import os
import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from binlog_playground.cluster.supervisor import Process
from tests.spark.support import spark_versions
from tests.waiting import until_here
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports

_RELEASE: Final = "1.11.0"
_JETTY: Final = "12.1.3"
_PACKAGES: Final = (
    f"org.apache.iceberg:iceberg-core:{_RELEASE}",
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{_JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-server:{_JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-gzip:{_JETTY}",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.slf4j:slf4j-simple:2.0.17",
)
_OF_TESTS: Final = (
    f"iceberg-open-api/{_RELEASE}/iceberg-open-api-{_RELEASE}-test-fixtures.jar",
    f"iceberg-core/{_RELEASE}/iceberg-core-{_RELEASE}-tests.jar",
)
_JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOG: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_FETCH_S: Final = 60


class RestCatalog:
    """One server, whose tables are known after it was killed, too."""

    def __init__(self, directory: Path, class_path: str) -> None:
        (port,) = free_ports(1)
        self.uri = f"http://{LOOPBACK}:{port}"
        java = [shutil.which("java") or "java", *_JVM, _LOG, "-cp", class_path]
        variables = {
            "CATALOG_URI": f"jdbc:sqlite:{directory}/rest.db",
            "CATALOG_WAREHOUSE": (directory / "warehouse").as_uri(),
            "CATALOG_REST_PORT": str(port),
        }
        argv = [*java, "org.apache.iceberg.rest.RESTCatalogServer"]
        self._process = Process("rest catalog", argv, directory / "rest.log", os.environ | variables)
        self.come_up()

    def go_down(self) -> None:
        """SIGKILL, whatever it does."""
        self._process.kill()

    def come_up(self) -> None:
        """From the main thread only, as `Process.start`."""
        if not self._process.is_running:
            self._process.start()
        until_here(self._answers, "the catalog answers")

    def _answers(self) -> bool:
        assert self._process.is_running, self._process.tail()
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=1.0):
                return True
        except OSError:
            return False


def _class_path() -> str:
    jars = spark_versions.class_path(*_PACKAGES).split(os.pathsep)

    def fetch(target: Path) -> None:
        place = _place_of(next(Path(jar) for jar in jars if jar.endswith(f"iceberg-core-{_RELEASE}.jar")))
        target.mkdir()
        for path in _OF_TESTS:
            try:
                with urllib.request.urlopen(f"{place}/{path}", timeout=_FETCH_S) as reply:
                    (target / Path(path).name).write_bytes(reply.read())
            except OSError as error:
                raise Unavailable(f"{path} cannot be downloaded: {error}") from None

    import pyspark

    files = spark_versions.once(f"rest-catalog-{_RELEASE}", fetch)
    hadoop = Path(pyspark.__file__).parent.glob("jars/hadoop-client-*.jar")
    return os.pathsep.join([*jars, *map(str, (*files.glob("*.jar"), *hadoop))])


def _place_of(core: Path) -> str:
    """The address below which there is all of Iceberg, as Ivy has noted it beside what it fetched."""
    noted = core.parents[1] / f"cache/org.apache.iceberg/iceberg-core/ivydata-{_RELEASE}.properties"
    match = re.search(r"location=(\S+)/iceberg-core/\S+\.jar$", noted.read_text(), re.MULTILINE)
    assert match is not None, f"{noted} does not say where the jar came from"
    return match[1].replace("\\:", ":")


@pytest.fixture
def rest_catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    """A server without a table."""
    if shutil.which("java") is None:
        pytest.skip("not on this machine: java")
    directory = tmp_path / "rest"
    directory.mkdir()
    server = RestCatalog(directory, spark_versions.or_skip(_class_path))
    try:
        yield server
    finally:
        server.go_down()
