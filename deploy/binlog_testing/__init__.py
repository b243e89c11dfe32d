"""binlog_testing: a cluster in memory, in which a program that publishes or subscribes can be tested.

    async def test_my_program(binlog_cluster):
        await my_program(binlog_cluster.endpoint)

The fixture comes with the installation, as a plugin of pytest; without pytest, `BinlogCluster` is entered
with `with`. What a program calls is the library itself: the publisher, the pump's sorter and its memory of
commits, merger, decoders. In memory are etcd, the pumps' disks, and the connections.
"""

from binlog_testing.cluster import BinlogCluster

__all__ = ["BinlogCluster"]
