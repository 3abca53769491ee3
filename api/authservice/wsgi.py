"""Where a WSGI server starts: `gunicorn 'api.authservice.wsgi:app()'`."""

import os

from flask import Flask

from api.authservice.app import create_auth_app
from config.settings import load


def app() -> Flask:
    """The authorization service as the environment describes it."""
    return create_auth_app(load(os.environ))
