"""The tests. Before gRPC is loaded by any of them, it is told to leave forks alone.

Spark forks to start its JVM; gRPC's own fork handlers, on by default, kill a part of such children.
"""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
