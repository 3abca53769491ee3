"""Where a WSGI server starts the authorization service; acts at import, as servers want it."""

import os
import time

from api.authservice.app import create_auth_app
from auth.programs.service_accounts import ServiceAccounts
from auth.tokens.grants import Grants
from auth.tokens.verifying import verifier
from config import logs
from config.settings import load
from storage.connecting import open_catalog, open_rates

_settings = load(os.environ)
logs.configure(_settings.log_level, "auth")

_catalog = open_catalog(_settings)
_accounts = ServiceAccounts(_catalog, lifetime_s=_settings.service_token_s)
_grants = Grants(_catalog, time.time)

application = create_auth_app(
    _settings,
    _catalog,
    verify=verifier(_settings, time.time, accounts=_accounts, grants=_grants).verify,
    rates=open_rates(_settings),
)
