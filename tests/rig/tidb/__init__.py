"""A real TiDB under random SQL, its binlogs through our Pumps and our Drainer: `python -m tests.rig.tidb`."""
