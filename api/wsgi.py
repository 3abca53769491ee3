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

application = create_app(
    _settings,
    connect(_settings),
    chains=chains.connect(_settings.redis_url),
    verify=verifier(_settings, time.time).verify,
)
