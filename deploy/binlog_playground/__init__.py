"""The one-command demo: a whole cluster of private processes, a workload, and a row-by-row proof.

`binlog-playground` starts an etcd, two Pumps, a Drainer and a MariaDB of its own in a scratch directory,
feeds them with a recorded TiDB workload and then with concurrent random sessions, and compares every table
downstream with what it must hold. Cores (`arrival`, `tables`, `job`, `model`, `workload`, `verify`, `limits`,
`statistics`) only compute; the other modules talk to processes, sockets and the terminal. Nothing outside of
`deploy` imports this package, and it never connects to a cluster that it did not start.
"""
