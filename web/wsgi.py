"""WSGI entry point of API and web pages; builds the application at import, after the fork."""

import os

from api.app import exit_on_boot_failure
from config import load_settings, logs
from storage.connect import connect
from storage.metrics import share_metrics
from web.app import build_app
from workers.redis_broker import build_sender

with exit_on_boot_failure():
    _settings = load_settings(os.environ)
    logs.configure_logging(_settings.log_level, "api", _settings.log_format, os.environ)
    share_metrics(_settings.metrics_folder, "api")
    _stores = connect(_settings)
    _job_sender = build_sender(_settings.redis_url, _stores.pubsub)
    application = build_app(_settings, _stores, _job_sender)
