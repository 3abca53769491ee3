"""Where a WSGI server starts the API; acts at import, after the fork, as servers want it."""

import logging
import os
import time

from api.app import create_app
from auth.programs.service_accounts import ServiceAccounts
from auth.tokens.grants import Grants
from auth.tokens.verifying import verifier
from config import logs
from config.settings import load
from pipelines.recovering import epochs
from storage.connecting import connect
from storage.errors import StoreError
from workers import chains

_settings = load(os.environ)
logs.configure(_settings.log_level, "api")

_stores = connect(_settings)

# Whatever started before us may have been another catalog's.
try:
    epochs.judge(_stores)
except StoreError as error:
    logging.getLogger(__name__).warning("the epoch is not known: %s", error.detail)

_accounts = ServiceAccounts(_stores.catalog, lifetime_s=_settings.service_token_s)
# Of a store that is apart from it, the logins are the authorization service's alone.
_grants = None if _settings.policies_url else Grants(_stores.catalog, time.time)
application = create_app(
    _settings,
    _stores,
    chains=chains.connect(_settings.redis_url, _stores.notices),
    verify=verifier(_settings, time.time, accounts=_accounts, grants=_grants).verify,
)
