"""The typed, frozen Settings of every process; imports nothing else of the project."""

from config.loading import load_settings
from config.settings import Settings, SettingsError

VERSION = "0.2.0"
"""Version of the store, as in `pyproject.toml`."""

__all__ = ["VERSION", "Settings", "SettingsError", "load_settings"]
