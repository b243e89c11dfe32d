"""Session: a Spark session set up as readers, folds and writers of this package need it.

Holds   times are UTC in Spark and in workers; workers run this interpreter; on this host nothing listens
        beyond loopback and no page is served; a cluster's executors get this package as a zip
Never   changes a session that is there already, but for the data source and the zone
Tests   tests/spark/test_session.py, tests/spark/test_arguments.py
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drainer.spark import jvm, worker_daemon
from tidb_binlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_HINT: Final = "install Java 17 or newer (apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
EXTRA_HINT: Final = "install the extra: pip install 'tidb-binlog[spark]'"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""`spark-submit` has started the JVM and leaves its port here; master and files are settings of that JVM."""
_ZONE: Final = "spark.sql.session.timeZone"
_EVERYWHERE: Final = {
    _ZONE: "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.executorEnv.TZ": "UTC",
    "spark.ui.showConsoleProgress": "false",  # it writes over our lines
}
_HERE: Final = {
    "spark.sql.shuffle.partitions": "32",  # of 200 on two cores most would be empty, at a cost each
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def session(
    app: str = "binlog-spark", master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The session, made as asked for if there is none, with `format("binlog")`. `conf` wins over what stands
    here. Raises `ConfigError`."""
    spark = without_format(app, master, conf)
    from drainer.spark.source import source

    source.register(spark)
    return spark


def without_format(app: str, master: str | None, conf: Mapping[str, str] | None) -> SparkSession:
    """The same for who does without: where a format is registered, Spark starts Python to look for all that
    are installed."""
    submitted = is_submitted()
    if not (submitted or is_connect(master) or "pyspark.sql.connect.session" in sys.modules):
        _need_java()
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
    if (active := SparkSession.getActiveSession()) is not None:
        active.conf.set(_ZONE, "UTC")
        return active
    if is_connect(master):
        builder = SparkSession.builder.remote(master or "")
        for key, value in (conf or {}).items():
            builder = builder.config(key, value)
        connected = builder.getOrCreate()
        connected.conf.set(_ZONE, "UTC")
        return connected
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 of the path
    chosen = {"spark.app.name": app, **_EVERYWHERE}
    if not submitted:
        master = master or "local[*]"
        chosen |= _settings(master)
    if master:
        chosen["spark.master"] = master
    chosen |= conf or {}
    if not submitted and SparkContext._gateway is None:  # a JVM outlives its sessions
        settings = SparkConf().setAll(list(chosen.items()))
        SparkContext(conf=settings, gateway=jvm.start(settings))
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_connect(master: str | None) -> bool:
    """Whether it is a server of Spark Connect: its sessions have no context, and no JVM is here."""
    return (master or "").startswith("sc://")


def is_submitted() -> bool:
    """Whether `spark-submit` started this process."""
    return _GATEWAY in os.environ


def quiet() -> None:
    """No log of errors that are raised as well: for programs that tell them in their own words."""
    from pyspark.logger import PySparkLogger

    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def is_local(master: str) -> bool:
    """Whether driver and executors are one process of this host."""
    return master == "local" or master.startswith("local[")


def _settings(master: str) -> dict[str, str]:
    """What the JVM that is started now gets."""
    chosen = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"}
    if is_local(master):
        # Spark looks for an address that others reach, and warns where it finds none.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if os.environ["PYSPARK_PYTHON"] == sys.executable:  # another one may not have this package
            chosen["spark.python.daemon.module"] = worker_daemon.__name__
        return {**chosen, **_HERE}
    from drainer.spark import packaging

    directory = Path(tempfile.mkdtemp(prefix="binlog-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # executors fetch it as long as we run
    return {**chosen, "spark.submit.pyFiles": str(packaging.package(directory))}


def _need_java() -> None:
    """Spark's own words for a missing Java are a stack of Python frames."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
            raise ConfigError(f"JAVA_HOME {home} has no bin/java", hint=JAVA_HINT)
    elif shutil.which("java") is None:
        raise ConfigError("Spark needs Java, and there is none in PATH", hint=JAVA_HINT)
