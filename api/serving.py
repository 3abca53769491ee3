"""The applications as they are served, on the engines of the settings."""

import logging
import time
from contextlib import AbstractContextManager

from flask import Flask

from api.app import create_app
from api.authservice.app import create_auth_app
from api.services import Chains, Verify
from auth.programs.service_accounts import ServiceAccounts
from auth.tokens.grants import Grants
from auth.tokens.verifying import verifier
from config.settings import Settings
from pipelines.recovering import epochs
from storage.catalog import Catalog
from storage.connecting import open_rates
from storage.errors import StoreError
from storage.faults import exit_with_sentence
from storage.stores import Stores

log = logging.getLogger(__name__)

_BOOT_FAILED = 3
"""The code that makes gunicorn stop instead of trying again."""


def booting() -> AbstractContextManager[None]:
    """End the process with a sentence if the block fails to make an application."""
    return exit_with_sentence(lambda _: _BOOT_FAILED)


def storage_application(settings: Settings, stores: Stores, chains: Chains) -> Flask:
    """The storage API."""
    # Whatever started before us may have been another catalog's.
    try:
        epochs.judge(stores)
    except StoreError as error:
        log.warning("the epoch is not known: %s", error.detail)
    # Of a store that is apart from it, the logins are the authorization service's alone.
    grants = None if settings.policies_url else Grants(stores.catalog, time.time)
    verify = _verify(settings, stores.catalog, grants)
    return create_app(settings, stores, chains=chains, verify=verify)


def authorization_application(settings: Settings, catalog: Catalog) -> Flask:
    """The authorization service."""
    verify = _verify(settings, catalog, Grants(catalog, time.time))
    return create_auth_app(settings, catalog, verify=verify, rates=open_rates(settings))


def _verify(settings: Settings, catalog: Catalog, grants: Grants | None) -> Verify:
    accounts = ServiceAccounts(catalog, lifetime_s=settings.service_token_s)
    return verifier(settings, time.time, accounts=accounts, grants=grants).verify
