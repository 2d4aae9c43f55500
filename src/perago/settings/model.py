"""Define the settings and their rules. Secrets are ``SecretStr`` from the start.

Error texts never repeat the value: it may be a secret in the wrong place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from platformdirs import user_state_path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from perago.errors import ConfigurationError
from perago.home import absolute

_HIGHEST_PORT = 65535


class Address(NamedTuple):
    """The host and the port on which a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _check_url(value: str) -> str:
    if not value.isascii():
        raise ValueError("write the address in ASCII; a host with other letters begins with xn--")
    try:
        parts = urlsplit(value)
    except ValueError:  # its text repeats the address
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("write an http:// or https:// address with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("write the address without a user; set the credentials separately")
    if parts.query or parts.fragment or not value.isprintable() or " " in value:
        raise ValueError("write only scheme, host, port and path")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("the port must be a number up to 65535") from None
    return value


def _check_credential(value: str) -> str:
    # Files and secret stores often add a line end, and the server then only says "denied".
    if not value or not value.isprintable() or value != value.strip():
        raise ValueError("it is empty, or has white space around it or a control character in it")
    return value


def _check_secret(value: SecretStr) -> SecretStr:
    _check_credential(value.get_secret_value())
    return value


def _read_address(value: object) -> object:
    """Parse ``host:port``; ``off`` is ``None``."""
    if value is None or isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ValueError("write it in quotes: host:port, or off")  # noqa: TRY004  pydantic's way
    if value.strip().lower() == "off":
        return None
    host, colon, port = value.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()):
        raise ValueError("write host:port, for example 127.0.0.1:9464, or off")
    if int(port) > _HIGHEST_PORT:
        raise ValueError("the port must be a number up to 65535")
    return Address(host, int(port))


def _check_remote(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.startswith("sc://") or not text.isprintable() or " " in text:
        raise ValueError("write a Spark Connect address, for example sc://spark.example.com:15002")
    return value


def _check_master(value: str) -> str:
    if not value or not value.isprintable() or value != value.strip():
        raise ValueError("write a Spark master, for example local[*] or spark://host:7077")
    return value


def _check_event_log(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("write a folder, or the address of one, such as hdfs://host/spark-events")
    return value if "://" in value else str(_absolute(Path(value)))


def _check_workspaces(value: str) -> str:
    for item in value.split(","):
        repository, slash, branch = item.strip().partition("/")
        if not slash or not repository or not branch or "/" in branch or not item.isprintable():
            raise ValueError(
                "write repository/branch patterns with commas between them, for example "
                "songs-*/main,other/*"
            )
    return value


def _check_patterns(value: str) -> str:
    for item in map(str.strip, value.split(",")):
        if not item or item.startswith("/") or ".." in item.split("/") or not item.isprintable():
            raise ValueError(
                "write patterns of files in your packages with commas between them, for example "
                "mytasks/words/*.txt"
            )
    return value


def _check_py_files(value: str) -> str:
    return _existing_files(value, (".py", ".zip", ".egg"), "libs.zip,helpers.py")


def _check_archives(value: str) -> str:
    return _existing_files(value, (".zip", ".jar", ".tar", ".tar.gz", ".tgz"), "words.tar.gz#words")


def _existing_files(value: str, endings: tuple[str, ...], example: str) -> str:
    """Make the paths absolute, and keep what stands behind a ``#``."""
    found: list[str] = []
    for item in map(str.strip, value.split(",")):
        name, mark, folder = item.partition("#")
        path = _absolute(Path(name))
        if not name.endswith(endings) or (mark and (not folder or "/" in folder)):
            kinds = ", ".join(endings)
            raise ValueError(f"write files ({kinds}) with commas between them, such as {example}")
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        found.append(f"{path}{mark}{folder}")
    return ",".join(found)


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _absolute(value: Path) -> Path:
    try:
        return absolute(value)
    except ConfigurationError:
        raise ValueError("there is no such home folder; write a full path") from None


def _default_workspace_root() -> Path:
    return user_state_path("perago") / "workspaces"


def _default_spark_logs() -> Path:
    return user_state_path("perago") / "spark-logs"


def _default_object_cache() -> Path:
    return user_state_path("perago") / "object-cache"


_Url = Annotated[str, AfterValidator(_check_url)]
_Credential = Annotated[str, AfterValidator(_check_credential)]
_Secret = Annotated[SecretStr, AfterValidator(_check_secret)]
_File = Annotated[Path, AfterValidator(_absolute)]


def _setting(variable: str, description: str, *, default: Any = None, **rules: Any) -> Any:
    """Build a field with the variable that sets it."""
    if "default_factory" not in rules:
        rules["default"] = default
    return Field(validation_alias=variable, description=description, **rules)


class Settings(BaseModel):
    """The settings of a worker: addresses, credentials, limits and policies.

    Creating one reads nothing: it holds the given values and defaults. ``load_settings`` reads the
    environment and the files.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_default=True
    )

    lakefs_endpoint: _Url | None = _setting("LAKECTL_SERVER_ENDPOINT_URL", "The LakeFS server.")
    lakefs_access_key_id: _Credential | None = _setting(
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "The access key id of the worker's LakeFS user."
    )
    lakefs_secret_access_key: _Secret | None = _setting(
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "The secret that belongs to it."
    )
    lakefs_s3_endpoint: _Url | None = _setting(
        "PERAGO_LAKEFS_S3_ENDPOINT", "The S3 gateway, where it has an address of its own."
    )
    ca_bundle: _File | None = _setting(
        "PERAGO_CA_BUNDLE",
        "A PEM file with the authorities to trust, for a LakeFS with a private one; for its object "
        "store besides the usual ones.",
    )
    conductor_server_url: _Url | None = _setting(
        "CONDUCTOR_SERVER_URL", "The Conductor server, with or without `/api` at its end."
    )
    conductor_auth_key: _Credential | None = _setting(
        "CONDUCTOR_AUTH_KEY", "The key id, for a Conductor that asks for one."
    )
    conductor_auth_secret: _Secret | None = _setting(
        "CONDUCTOR_AUTH_SECRET", "The secret that belongs to it."
    )
    workspace_root: Annotated[Path, AfterValidator(_absolute)] = _setting(
        "PERAGO_WORKSPACE_ROOT",
        "Where attempts keep their files while they run; several workers may share it.",
        default_factory=_default_workspace_root,
    )
    min_free_bytes: int = _setting(
        "PERAGO_MIN_FREE_BYTES",
        "With less free space below `PERAGO_WORKSPACE_ROOT`, `/readyz` says no.",
        default=1 << 30,
        ge=0,
    )
    allowed_workspaces: Annotated[str, AfterValidator(_check_workspaces)] = _setting(
        "PERAGO_ALLOWED_WORKSPACES",
        "The workspaces that a workflow may ask for: repository/branch patterns, with commas.",
        default="*/*",
    )
    transfer: Annotated[Literal["auto", "gateway"], BeforeValidator(_lower)] = _setting(
        "PERAGO_TRANSFER",
        "`auto` moves objects straight from and to LakeFS's object store, where LakeFS gives out "
        "presigned addresses; `gateway` moves all through LakeFS.",
        default="auto",
    )
    transfer_threads: int = _setting(
        "PERAGO_TRANSFER_THREADS", "Objects moved at once, 1 to 256.", default=32, ge=1, le=256
    )
    object_cache: Annotated[Path, AfterValidator(_absolute)] = _setting(
        "PERAGO_OBJECT_CACHE",
        "Where the objects that this host has moved are kept; several workers may share it.",
        default_factory=_default_object_cache,
    )
    object_cache_bytes: int | None = _setting(
        "PERAGO_OBJECT_CACHE_BYTES",
        "The most bytes that it takes; 0 switches it off. By default a tenth of the free disk, "
        "and at most 32 GiB.",
        ge=0,
    )
    spark_min_objects: int = _setting(
        "PERAGO_SPARK_MIN_OBJECTS",
        "From so many objects on, Spark moves a workspace; 0 leaves it to bytes alone.",
        default=250_000,
        ge=0,
    )
    spark_min_bytes: int = _setting(
        "PERAGO_SPARK_MIN_BYTES",
        "From so many bytes on, Spark moves a workspace; 0 leaves it to objects alone.",
        default=64 << 30,
        ge=0,
    )
    workspace_root_shared: bool = _setting(
        "PERAGO_WORKSPACE_ROOT_SHARED",
        "Whether every Spark worker sees `PERAGO_WORKSPACE_ROOT` under the same path.",
        default=False,
    )
    publish_fence: Literal["soft", "hard"] = _setting(
        "PERAGO_PUBLISH_FENCE",
        "`hard` refuses an input commit that lacks the fence's action file.",
        default="soft",
    )
    replacement: Literal["provenance", "head-state", "off"] = _setting(
        "PERAGO_REPLACEMENT",
        "`provenance` replaces only a commit that is recorded as the same task's; `head-state` "
        "any commit one past the input; `off` none.",
        default="provenance",
    )
    spark_remote: Annotated[SecretStr, AfterValidator(_check_remote)] | None = _setting(
        "SPARK_REMOTE",
        "An external Spark Connect server (`sc://…`); without it, the worker uses managed Spark.",
    )
    spark_master: Annotated[str, AfterValidator(_check_master)] = _setting(
        "PERAGO_SPARK_MASTER", "The master of managed Spark.", default="local[*]"
    )
    spark_properties: _File | None = _setting(
        "PERAGO_SPARK_PROPERTIES", "A properties file with settings of managed Spark."
    )
    spark_idle_seconds: float = _setting(
        "PERAGO_SPARK_IDLE_SECONDS",
        "Managed Spark that no attempt has used for so long is stopped, and started again when one "
        "needs it; 0 keeps it.",
        default=1800.0,
        ge=0,
        allow_inf_nan=False,
    )
    spark_ui: Annotated[Address | None, BeforeValidator(_read_address)] = _setting(
        "PERAGO_SPARK_UI",
        "Where managed Spark serves its UI, for example 127.0.0.1:4040; another free port if that "
        "one is taken.",
    )
    spark_event_log: Annotated[str, AfterValidator(_check_event_log)] | None = _setting(
        "PERAGO_SPARK_EVENT_LOG",
        "The folder, or the address of one, where managed Spark writes its event logs.",
    )
    spark_logs: Annotated[Path, AfterValidator(_absolute)] = _setting(
        "PERAGO_SPARK_LOGS",
        "Where the logs of managed Spark are kept: those of the latest 20 servers.",
        default_factory=_default_spark_logs,
    )
    spark_data: Annotated[str, AfterValidator(_check_patterns)] | None = _setting(
        "PERAGO_SPARK_DATA",
        "Data files of your packages that Spark's executors get besides Python files: patterns, "
        "with commas.",
    )
    spark_py_files: Annotated[str, AfterValidator(_check_py_files)] | None = _setting(
        "PERAGO_SPARK_PY_FILES",
        "Python files and zips of them that bodies and functions on Spark can import, with commas.",
    )
    spark_archives: Annotated[str, AfterValidator(_check_archives)] | None = _setting(
        "PERAGO_SPARK_ARCHIVES",
        "Archives unpacked where functions run on Spark, with commas: `words.tar.gz#words`.",
    )
    shutdown_grace_seconds: float = _setting(
        "PERAGO_SHUTDOWN_GRACE_SECONDS",
        "How long a stopping worker waits for attempts before it hands them back.",
        default=30.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
    )
    executor_attempts: int = _setting(
        "PERAGO_EXECUTOR_ATTEMPTS",
        "After so many attempts an executor is replaced by a new process; 0 keeps it for good.",
        default=1000,
        ge=0,
    )
    metrics_address: Annotated[Address | None, BeforeValidator(_read_address)] = _setting(
        "PERAGO_METRICS_ADDRESS",
        "Where `/metrics`, `/healthz` and `/readyz` are served; port 0 takes a free one, "
        "`off` serves nothing.",
        default=Address("127.0.0.1", 9464),
    )
    log_format: Annotated[Literal["auto", "console", "json"], BeforeValidator(_lower)] = _setting(
        "PERAGO_LOG_FORMAT",
        "`console`, `json`, or `auto`: console on a terminal, JSON lines otherwise.",
        default="auto",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = (
        _setting("PERAGO_LOG_LEVEL", "`debug`, `info`, `warning` or `error`.", default="info")
    )

    @property
    def spark_data_patterns(self) -> tuple[str, ...]:
        return _split(self.spark_data or "")

    @property
    def spark_py_file_names(self) -> tuple[str, ...]:
        return _split(self.spark_py_files or "")

    @property
    def spark_archive_names(self) -> tuple[str, ...]:
        return _split(self.spark_archives or "")

    @property
    def allowed_workspace_patterns(self) -> tuple[str, ...]:
        return _split(self.allowed_workspaces)


def _split(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())


def variable_of(field: str) -> str:
    """Return the environment variable of a field."""
    return str(Settings.model_fields[field].validation_alias)


SECRET_FIELDS = frozenset(
    # The address of a Spark Connect server carries its token.
    {"lakefs_secret_access_key", "conductor_auth_secret", "spark_remote"}
)
