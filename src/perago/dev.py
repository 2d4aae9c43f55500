"""Run the embedded stack: real LakeFS, Conductor and Spark Connect servers as child processes.

::

    with Stack.up(Path("/tmp/stack"), spark=False, ephemeral=True) as stack:
        os.environ.update(stack.endpoints.as_environment())
        stack.lakefs.stop()     # each server can be stopped and started again: same port, same data
        stack.lakefs.start()
"""

from perago.servers.control import Health, ServerStatus, inspect, shut_down
from perago.servers.endpoints import ConductorEndpoint, Endpoints, LakeFSEndpoint, SparkEndpoint
from perago.servers.stack import Stack, default_data_dir, obtain

__all__ = [
    "ConductorEndpoint",
    "Endpoints",
    "Health",
    "LakeFSEndpoint",
    "ServerStatus",
    "SparkEndpoint",
    "Stack",
    "default_data_dir",
    "inspect",
    "obtain",
    "shut_down",
]
