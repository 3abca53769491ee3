"""The one typed, frozen Settings of every process; imports nothing of ours."""

from config.settings import Settings, SettingsError, load

__all__ = ["Settings", "SettingsError", "load"]
