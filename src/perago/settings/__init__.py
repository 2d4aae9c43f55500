"""Settings by the names that the ecosystems use, each value with where it came from."""

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
