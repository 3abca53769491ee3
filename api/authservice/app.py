"""Composition of the authorization service: its views, its definition, its errors."""

from collections.abc import Callable

from flask import Flask

from api.authservice.definition import definition
from api.authservice.views import OPERATIONS, Service, register_views
from api.errors import register_errors
from api.problems import new_request_id, number_requests
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
    service = Service(settings.auth_url, keys, definition(settings.auth_url, OPERATIONS))
    register_views(app, service)
    register_errors(app)
    number_requests(app, request_ids)
    return app
