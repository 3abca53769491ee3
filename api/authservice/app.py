"""Composition of the authorization service: its views, its definition, its errors."""

from collections.abc import Callable

from flask import Flask

from api.authservice.definition import definition
from api.authservice.views import OPERATIONS, Service, register_views
from api.conventions import register_conventions, uncounted
from api.problems import new_request_id
from auth.keys import KeyFile
from config.settings import Settings


def create_auth_app(
    settings: Settings, *, request_ids: Callable[[], str] = new_request_id
) -> Flask:
    """The application; its signing keys are made here if this home has none yet."""
    keys = KeyFile(settings.home)
    keys.read()
    app = Flask(__name__, static_folder=None)
    app.url_map.strict_slashes = False
    register_conventions(
        app, origins=settings.cors_origins, request_ids=request_ids, count=uncounted
    )
    service = Service(settings.auth_url, keys, definition(settings.auth_url, OPERATIONS))
    register_views(app, service)
    return app
