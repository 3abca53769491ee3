"""WSGI entry point of the authorization service."""

import os

from api.app import build_auth_app, exit_on_boot_failure
from config import load_settings, logs
from storage.connect import open_catalog

with exit_on_boot_failure():
    _settings = load_settings(os.environ)
    logs.configure_logging(_settings.log_level, "auth", _settings.log_format, os.environ)
    application = build_auth_app(_settings, open_catalog(_settings))
