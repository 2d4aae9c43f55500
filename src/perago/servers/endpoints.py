"""Describe the addresses and credentials of a stack's servers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from perago.connections import LakeFSConnection
from perago.servers.loopback import LOOPBACK
from perago.servers.spark import loopback_remote


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class LakeFSEndpoint(_Value):
    """LakeFS: its API and its S3 gateway share the address and the credentials."""

    endpoint: str
    access_key_id: str
    # Not in `repr`: no log line and no traceback may show it.
    secret_access_key: str = Field(repr=False)

    @classmethod
    def at(cls, port: int, access_key_id: str, secret_access_key: str) -> LakeFSEndpoint:
        """Build the endpoint of a LakeFS on a loopback port."""
        return cls(
            endpoint=f"http://{LOOPBACK}:{port}",
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
        )

    @property
    def connection(self) -> LakeFSConnection:
        """The connection for clients in this process."""
        return LakeFSConnection(
            self.endpoint, self.access_key_id, SecretStr(self.secret_access_key)
        )


class ConductorEndpoint(_Value):
    """Conductor: the root of its API. It needs no credentials."""

    server_url: str

    @classmethod
    def at(cls, port: int) -> ConductorEndpoint:
        """Build the endpoint of a Conductor on a loopback port."""
        return cls(server_url=f"http://{LOOPBACK}:{port}/api")


class SparkEndpoint(_Value):
    """Spark Connect: the connection string, which carries the token."""

    remote: str = Field(repr=False)

    @classmethod
    def at(cls, port: int, token: str) -> SparkEndpoint:
        """Build the endpoint of a Spark Connect server on a loopback port."""
        return cls(remote=loopback_remote(port, token))


class Endpoints(_Value):
    """The endpoints of all servers of a stack; ``spark`` is None while it does not run."""

    lakefs: LakeFSEndpoint
    conductor: ConductorEndpoint
    spark: SparkEndpoint | None = None

    def as_environment(self) -> dict[str, str]:
        """Map them to the variables that lakectl, the Conductor SDKs and pyspark read."""
        environment = {
            "LAKECTL_SERVER_ENDPOINT_URL": self.lakefs.endpoint,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": self.lakefs.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": self.lakefs.secret_access_key,
            "CONDUCTOR_SERVER_URL": self.conductor.server_url,
        }
        if self.spark is not None:
            environment["SPARK_REMOTE"] = self.spark.remote
        return environment
