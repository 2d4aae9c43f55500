"""Resolve which Spark a worker uses, from settings and the command line; nothing is started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.errors import ConfigurationError
from perago.masking import (
    SPARK_CONF_PREFIX,
    mask_secrets,
    names_secret,
    remember_named_secrets,
)
from perago.servers.loopback import LOOPBACK
from perago.servers.properties import read_properties
from perago.servers.spark import ConnectSettings
from perago.servers.toolchain import spark_jars
from perago.settings import Settings
from perago.spark.session import SHARES_MODULES
from perago.text import MASK

_TOKEN = re.compile(r"(token=)[^;]+")
_UI = (LOOPBACK, 4040)
_INSTEAD = {
    "spark.ui.enabled": "--spark-ui or PERAGO_SPARK_UI",
    "spark.ui.port": "PERAGO_SPARK_UI",
    "spark.master": "--master or PERAGO_SPARK_MASTER",
    "spark.remote": "SPARK_REMOTE",
    "spark.connect.grpc.binding.address": "nothing: the server listens on loopback only",
    "spark.connect.grpc.binding.port": "nothing: Perago chooses a free port",
    "spark.connect.authenticate.token": "nothing: Perago generates a random token",
}
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_DELTA_ARTIFACT = "io.delta:delta-spark_"


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The Spark options of ``perago start``, named as those of spark-submit."""

    master: str | None = None
    conf: tuple[str, ...] = ()
    packages: str | None = None
    # Serve the UI, on loopback unless the settings name an address.
    ui: bool = False

    @property
    def given(self) -> list[str]:
        options: dict[str, object] = {
            "--master": self.master,
            "--conf": self.conf,
            "--packages": self.packages,
            "--spark-ui": self.ui,
        }
        return [name for name, value in options.items() if value]


@dataclass(frozen=True, slots=True)
class ExternalSpark:
    """An external Connect server: the worker neither starts nor stops it."""

    remote: SecretStr
    # Unknown, so it must not be assumed.
    runs_here = False

    def described(self) -> dict[str, str]:
        """Describe it for the log, with the token masked."""
        return {"remote": _TOKEN.sub(rf"\g<1>{MASK}", self.remote.get_secret_value())}


@dataclass(frozen=True, slots=True)
class ManagedSpark:
    """A managed Connect server: the worker starts it, keeps it and stops it."""

    connect: ConnectSettings
    # The user's settings, without those that Perago adds.
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    # After so long without an attempt it is stopped; 0 means never.
    idle_seconds: float = 0.0
    # Where its logs are kept; None keeps none.
    logs: Path | None = None

    @property
    def runs_here(self) -> bool:
        """Whether functions run on this machine, with this machine's folders."""
        return self.connect.is_local

    def described(self) -> dict[str, str]:
        """Describe it for the log: the resolved settings, with secrets masked."""
        shown = {key: shown_value(key, value) for key, value in sorted(self.conf.items())}
        s3_gateway = self.connect.lakefs.gateway
        chosen = {"spark.master": self.connect.master, "s3_gateway": s3_gateway}
        return {**chosen, **self.connect.memory(), **self.connect.events(), **shown}


def resolve_spark(
    settings: Settings,
    lakefs: LakeFSConnection,
    options: SparkOptions,
    environment: Mapping[str, str],
) -> ExternalSpark | ManagedSpark:
    """Choose external Spark if ``SPARK_REMOTE`` is set, else managed Spark with its settings.

    For the settings the command line wins over variables, and variables over the properties file.
    """
    if settings.spark_remote is not None:
        if options.given:
            raise ConfigurationError(
                f"{', '.join(options.given)} cannot change the server that SPARK_REMOTE names",
                hint="Unset SPARK_REMOTE to use managed Spark, or leave the options out.",
            )
        return ExternalSpark(settings.spark_remote)
    file = settings.spark_properties
    conf = {
        **(read_properties(file) if file is not None else {}),
        **conf_of_variables(environment),
        **conf_of_options(options.conf),
    }
    remember_named_secrets(conf)
    if options.packages:
        conf["spark.jars.packages"] = options.packages
    problems = [f"{key} cannot be set; use {_INSTEAD[key]}" for key in conf if key in _INSTEAD]
    if problems:
        raise ConfigurationError("\n".join(problems), hint="Remove the settings named above.")
    conf = with_delta(conf, installed_delta())
    master = options.master or settings.spark_master
    ui = settings.spark_ui or (_UI if options.ui else None)
    connect = ConnectSettings("perago", lakefs, master, conf, ui, settings.spark_event_log)
    if connect.is_local:
        connect = replace(connect, conf={**conf, SHARES_MODULES: "true"})
    return ManagedSpark(connect, conf, settings.spark_idle_seconds, settings.spark_logs)


def conf_of_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Read ``PERAGO_SPARK_CONF_spark__sql__shuffle__partitions=8``: two underscores are a dot."""
    conf: dict[str, str] = {}
    wrong: list[str] = []
    for variable, value in environment.items():
        if not variable.startswith(SPARK_CONF_PREFIX):
            continue
        key = variable.removeprefix(SPARK_CONF_PREFIX).replace("__", ".")
        if not key.startswith("spark."):
            wrong.append(variable)
        else:
            conf[key] = value
    if wrong:
        raise ConfigurationError(
            f"not the name of a Spark setting: {', '.join(sorted(wrong))}",
            hint=f"Write two underscores for each dot, and keep upper and lower case: "
            f"{SPARK_CONF_PREFIX}spark__executor__memoryOverhead.",
        )
    return conf


def conf_of_options(items: Iterable[str]) -> dict[str, str]:
    """Read ``--conf spark.sql.shuffle.partitions=8``, as spark-submit does."""
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


def installed_delta() -> str | None:
    """Return the version of the installed Python package; None without the extra."""
    try:
        return version("delta-spark")
    except PackageNotFoundError:
        return None


def with_delta(conf: Mapping[str, str], delta: str | None) -> dict[str, str]:
    """Add what Delta needs to Spark settings; without Delta, change nothing.

    The installed Python package decides the version; Spark fetches the jars by their coordinates,
    as it does for ``--packages``. Settings of the user for the same purpose are kept or extended.
    """
    if delta is None:
        return dict(conf)
    packages = conf.get("spark.jars.packages", "")
    extensions = conf.get("spark.sql.extensions", "")
    if _DELTA_ARTIFACT not in packages:
        spark = ".".join(version("pyspark").split(".")[:2])
        packages = _joined(packages, f"{_DELTA_ARTIFACT}{spark}_{spark_jars.SCALA}:{delta}")
    if _DELTA_EXTENSION not in extensions:
        extensions = _joined(extensions, _DELTA_EXTENSION)
    return {
        "spark.sql.catalog.spark_catalog": _DELTA_CATALOG,
        **conf,
        "spark.jars.packages": packages,
        "spark.sql.extensions": extensions,
    }


def _joined(given: str, added: str) -> str:
    return f"{given},{added}" if given else added


def shown_value(key: str, value: str) -> str:
    """Return a setting's value as it may be shown: masked if the key names a secret."""
    return MASK if names_secret(key) else mask_secrets(value)
