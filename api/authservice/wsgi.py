"""Where a WSGI server starts the authorization service; acts at import, as servers want it."""

import os

from api.serving import authorization_application, booting
from config import logs
from config.settings import load
from storage.connecting import open_catalog

with booting():
    _settings = load(os.environ)
    logs.configure(_settings.log_level, "auth")
    application = authorization_application(_settings, open_catalog(_settings))
