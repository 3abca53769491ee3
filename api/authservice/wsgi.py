"""Where a WSGI server starts the authorization service; acts at import, as servers want it."""

import os

from api.authservice.app import create_auth_app
from config import logs
from config.settings import load

_settings = load(os.environ)
logs.configure(_settings.log_level, "auth")

application = create_auth_app(_settings)
