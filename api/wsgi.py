"""Where a WSGI server starts the API; acts at import, after the fork, as servers want it."""

import os
import time

from api.app import create_app
from auth.tokens import verifier
from config import logs
from config.settings import load
from storage.connecting import connect
from workers import chains

_settings = load(os.environ)
logs.configure(_settings.log_level, "api")

_stores = connect(_settings)

application = create_app(
    _settings,
    _stores,
    chains=chains.connect(_settings.redis_url, _stores.notices),
    verify=verifier(_settings, time.time).verify,
)
