"""What PD and TiKV say of a region."""

from __future__ import annotations

from tidb_binlog.upstream.tidb.tikv.regions import Region, key_for_pd, peer_message
from tidb_binlog.wire import metapb_pb2


def region_message(region: Region) -> metapb_pb2.Region:
    """The same region with PD's boundaries."""
    return metapb_pb2.Region(
        id=region.id,
        start_key=key_for_pd(region.start_key),
        end_key=key_for_pd(region.end_key),
        region_epoch=metapb_pb2.RegionEpoch(conf_ver=region.conf_ver, version=region.version),
        peers=[peer_message(peer) for peer in region.peers],
    )
