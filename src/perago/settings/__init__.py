"""Read settings under the names that LakeFS' and Conductor's tools use, each with its origin."""

from perago.settings.loading import LoadedSettings, SettingValue, load_settings, read_settings
from perago.settings.model import Address, Settings

__all__ = [
    "Address",
    "LoadedSettings",
    "SettingValue",
    "Settings",
    "load_settings",
    "read_settings",
]
