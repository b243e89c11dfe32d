"""Choice: which upstream the endpoints belong to.

PD and the etcd of a standalone cluster answer on the same kind of address. `auto` asks for PD's members: who
answers is PD, who does not know the question is a plain etcd, and who does not answer says nothing at all.
Never  takes a PD that is down for a plain etcd, or founds a standalone cluster inside a TiDB cluster
Tests  tests/common/upstream/test_contract.py
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from tidb_binlog.clock import Clock
from tidb_binlog.errors import ConfigError, Conflict, Unavailable
from tidb_binlog.etcd.client import REQUEST_TIMEOUT_S
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.tidb import TidbUpstream
from tidb_binlog.upstream.tidb.pd.pd import NotPd, PdClient
from tidb_binlog.upstream_port import Upstream

UNREACHABLE_HINT: Final = "start it, or correct its address"
Kind = Literal["auto", "tidb", "standalone"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)


def check_kind(name: str) -> Kind:
    """Raises `ConfigError` for an unknown upstream."""
    for kind in KINDS:
        if name == kind:
            return kind  # type: ignore[return-value]
    raise ConfigError(f"upstream {name!r} is not known", hint=f"set one of {', '.join(KINDS)}")


async def connect(
    kind: Kind,
    endpoints: str,
    *,
    tls: TlsConfig | None = None,
    create: bool = True,
    cluster_id: int | None = None,
    clock: Clock | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> Upstream:
    """The upstream at `endpoints`, a comma list of host:port or URLs.

    `create` lets a standalone cluster be founded where none is. Raises `Unavailable`, `Conflict` if the
    cluster there is not `cluster_id`, `Rejected` if there is none of this kind.
    """
    if kind != "standalone":
        try:
            tidb = await TidbUpstream.connect(endpoints, tls=tls, clock=clock, timeout_s=timeout_s)
        except NotPd:
            if kind == "tidb":
                raise
        except Unavailable as error:
            if kind == "tidb":
                raise
            raise Unavailable(
                f"PD or etcd at {endpoints} cannot be reached: {error.message}", hint=UNREACHABLE_HINT
            ) from None
        else:
            if cluster_id is not None and cluster_id != tidb.cluster_id:
                await tidb.close()
                raise Conflict(
                    f"PD at {endpoints} belongs to cluster {tidb.cluster_id}, not {cluster_id}",
                    hint="check the address",
                )
            return tidb
    return await StandaloneUpstream.connect(
        endpoints, tls=tls, create=create, cluster_id=cluster_id, clock=clock, timeout_s=timeout_s
    )


async def cluster_id(
    endpoints: str, *, tls: TlsConfig | None = None, timeout_s: float = REQUEST_TIMEOUT_S
) -> int:
    """The id of the cluster at `endpoints`, of either kind. Raises as `connect`."""
    try:
        pd = await PdClient.connect(endpoints, tls=tls, timeout_s=timeout_s)
    except NotPd:
        standalone = await StandaloneUpstream.connect(endpoints, tls=tls, create=False, timeout_s=timeout_s)
        await standalone.close()
        return standalone.cluster_id
    await pd.close()
    return pd.cluster_id
