"""From settings and the command line to the Spark a worker uses. Pure: nothing is started here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import ConfigurationError
from perago.servers.properties import read_properties
from perago.servers.spark import ConnectSettings
from perago.settings import Settings
from perago.spark.delta import installed_delta, with_delta
from perago.spark.session import SHARES_MODULES

CONF_PREFIX = "PERAGO_SPARK_CONF_"
_MASK = "********"
# What Spark itself hides in its own pages.
_SECRET_KEY = re.compile(r"secret|password|token|access[.]?key|credential", re.IGNORECASE)
_TOKEN = re.compile(r"(token=)[^;]+")
_INSTEAD = {
    "spark.master": "--master or PERAGO_SPARK_MASTER",
    "spark.remote": "SPARK_REMOTE",
    "spark.connect.grpc.binding.address": "nothing: the server listens on loopback only",
    "spark.connect.grpc.binding.port": "nothing: a free port is taken",
    "spark.connect.authenticate.token": "nothing: a random one is made",
}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What ``perago start`` was given, spelled as spark-submit spells it."""

    master: str | None = None
    conf: tuple[str, ...] = ()
    packages: str | None = None

    @property
    def given(self) -> list[str]:
        options = {"--master": self.master, "--conf": self.conf, "--packages": self.packages}
        return [name for name, value in options.items() if value]


@dataclass(frozen=True, slots=True)
class ExternalSpark:
    """Somebody else's Connect server."""

    remote: SecretStr
    # Nobody can say where its functions run.
    runs_here = False

    def described(self) -> dict[str, str]:
        """For the log."""
        return {"remote": _TOKEN.sub(rf"\g<1>{_MASK}", self.remote.get_secret_value())}


@dataclass(frozen=True, slots=True)
class ManagedSpark:
    """A Connect server that the worker starts."""

    connect: ConnectSettings
    # What the user has set, without what Perago adds.
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def runs_here(self) -> bool:
        """Whether its functions run on this machine, with this machine's folders."""
        return self.connect.is_local

    def described(self) -> dict[str, str]:
        """For the log: what was resolved, with secrets masked."""
        shown = {key: mask(key, value) for key, value in sorted(self.conf.items())}
        gateway = self.connect.lakefs.gateway
        return {"spark.master": self.connect.master, "s3_gateway": gateway, **shown}


def resolve_spark(
    settings: Settings,
    lakefs: LakeFSConnection,
    options: SparkOptions,
    environment: Mapping[str, str],
) -> ExternalSpark | ManagedSpark:
    """``SPARK_REMOTE`` wins; else the command line, then variables, then the properties file."""
    if settings.spark_remote is not None:
        if options.given:
            raise ConfigurationError(
                f"{', '.join(options.given)} cannot change the server that SPARK_REMOTE names",
                hint="Unset SPARK_REMOTE to have the worker start its own Spark, or leave the "
                "options out.",
            )
        return ExternalSpark(settings.spark_remote)
    file = settings.spark_properties
    conf = {
        **(read_properties(file) if file is not None else {}),
        **conf_of_variables(environment),
        **conf_of_options(options.conf),
    }
    if options.packages:
        conf["spark.jars.packages"] = options.packages
    problems = [
        f"{key} is not for you to set; use {_INSTEAD[key]}" for key in conf if key in _INSTEAD
    ]
    if problems:
        raise ConfigurationError("\n".join(problems), hint="Remove what is named above.")
    conf = with_delta(conf, installed_delta())
    master = options.master or settings.spark_master
    connect = ConnectSettings("perago", lakefs, master, conf)
    if connect.is_local:
        connect = ConnectSettings("perago", lakefs, master, {**conf, SHARES_MODULES: "true"})
    return ManagedSpark(connect, conf)


def conf_of_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """``PERAGO_SPARK_CONF_spark__sql__shuffle__partitions=8``: two underscores are a dot."""
    conf: dict[str, str] = {}
    wrong: list[str] = []
    for variable, value in environment.items():
        if not variable.startswith(CONF_PREFIX):
            continue
        key = variable.removeprefix(CONF_PREFIX).replace("__", ".")
        if not key.startswith("spark."):
            wrong.append(variable)
        else:
            conf[key] = value
    if wrong:
        raise ConfigurationError(
            f"not the name of a Spark setting: {', '.join(sorted(wrong))}",
            hint=f"Write two underscores for each dot, and keep upper and lower case: "
            f"{CONF_PREFIX}spark__executor__memoryOverhead.",
        )
    return conf


def conf_of_options(items: Iterable[str]) -> dict[str, str]:
    """``--conf spark.sql.shuffle.partitions=8``, as spark-submit takes it."""
    conf: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip().startswith("spark."):
            # The value is not shown: it may be a secret.
            raise ConfigurationError(
                f"--conf {key.strip()!r} is not a Spark setting with a value",
                hint="Write --conf spark.name=value.",
            )
        conf[key.strip()] = value
    return conf


def mask(key: str, value: str) -> str:
    """A setting's value as it may be shown."""
    return _MASK if _SECRET_KEY.search(key) else value
