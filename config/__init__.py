"""The typed, frozen Settings of every process; imports nothing else of the project."""

from config.settings import Settings, SettingsError, load_settings

__all__ = ["Settings", "SettingsError", "load_settings"]
