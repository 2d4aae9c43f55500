"""Settings by the names that the ecosystems use. Secrets are ``SecretStr`` from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from platformdirs import user_state_path
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from perago.errors import ConfigurationError


def _default_workspace_root() -> Path:
    return user_state_path("perago") / "workspaces"


class Settings(BaseSettings):
    """What a worker needs to know about the world around it."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    lakefs_endpoint: str | None = Field(None, validation_alias="LAKECTL_SERVER_ENDPOINT_URL")
    lakefs_access_key_id: str | None = Field(
        None, validation_alias="LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
    )
    lakefs_secret_access_key: SecretStr | None = Field(
        None, validation_alias="LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
    )
    conductor_server_url: str | None = Field(None, validation_alias="CONDUCTOR_SERVER_URL")
    conductor_auth_key: str | None = Field(None, validation_alias="CONDUCTOR_AUTH_KEY")
    conductor_auth_secret: SecretStr | None = Field(None, validation_alias="CONDUCTOR_AUTH_SECRET")
    workspace_root: Path = Field(
        default_factory=_default_workspace_root, validation_alias="PERAGO_WORKSPACE_ROOT"
    )
    transfer_threads: int = Field(32, ge=1, le=256, validation_alias="PERAGO_TRANSFER_THREADS")
    publish_fence: Literal["soft", "hard"] = Field("soft", validation_alias="PERAGO_PUBLISH_FENCE")
    replacement: Literal["head-state", "provenance"] = Field(
        "head-state", validation_alias="PERAGO_REPLACEMENT"
    )


def load_settings() -> Settings:
    """Read the environment; every wrong value is named at once."""
    try:
        return Settings()
    except ValidationError as error:
        lines = [
            f"{item['loc'][0]}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        ]
        raise ConfigurationError("\n".join(lines)) from None
