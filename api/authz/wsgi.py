"""WSGI entry point of the authorization service."""

import os

from api.app import build_auth_app, exit_on_boot_failure
from config import load_settings, logs
from storage.connect import open_catalog
from storage.engines import open_tracer
from storage.metrics import serve_metrics, share_metrics

with exit_on_boot_failure():
    _settings = load_settings(os.environ)
    logs.configure_logging(_settings.log_level, "auth", _settings.log_format, os.environ)
    share_metrics(_settings.metrics_folder, "auth")
    serve_metrics(_settings.host, _settings.metrics_port)
    application = build_auth_app(
        _settings, open_catalog(_settings), open_tracer(_settings, "store-authorization")
    )
