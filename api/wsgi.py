"""Where a WSGI server starts the API; acts at import, after the fork, as servers want it."""

import os

from api.serving import booting, storage_application
from config import logs
from config.settings import load
from storage.connecting import connect
from workers.redis_broker import sender

with booting():
    _settings = load(os.environ)
    logs.configure(_settings.log_level, "api")
    _stores = connect(_settings)
    _chains = sender(_settings.redis_url, _stores.notices)
    application = storage_application(_settings, _stores, _chains)
