"""WSGI entry point of the storage API; builds the application at import, after the fork."""

import os

from api.app import build_storage_app, exit_on_boot_failure
from config import load_settings, logs
from storage.connect import connect
from workers.redis_broker import build_sender

with exit_on_boot_failure():
    _settings = load_settings(os.environ)
    logs.configure_logging(_settings.log_level, "api")
    _stores = connect(_settings)
    _job_sender = build_sender(_settings.redis_url, _stores.pubsub)
    application = build_storage_app(_settings, _stores, _job_sender)
