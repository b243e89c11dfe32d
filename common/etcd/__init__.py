"""Everything etcd: the key-value client and the registry on top of it. Nothing else imports aetcd."""

from __future__ import annotations

from common.etcd.client import REQUEST_TIMEOUT_S, EtcdClient
from common.etcd.registry import EtcdRegistry
from common.net.tls import TlsConfig

__all__ = ["REQUEST_TIMEOUT_S", "EtcdClient", "EtcdRegistry", "connect"]


async def connect(
    endpoints: str, *, tls: TlsConfig | None = None, timeout_s: float = REQUEST_TIMEOUT_S
) -> EtcdRegistry:
    """The registry at a comma list of http://host:port or host:port.

    Raises `Unavailable` naming the endpoints when none answers, `ConfigError` for malformed ones.
    """
    return EtcdRegistry(await EtcdClient.connect(endpoints, tls=tls, timeout_s=timeout_s))
