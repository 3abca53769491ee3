"""The typed, frozen Settings of every process; imports nothing else of the project."""

from config.settings import Settings, SettingsError, load_settings

VERSION = "0.2.0"
"""Version of the store, as in `pyproject.toml`."""

__all__ = ["VERSION", "Settings", "SettingsError", "load_settings"]
