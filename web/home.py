"""The home page, the client as an archive that pip installs, and the API reference (Swagger UI)."""

import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from flask import Response

from api.app import OPERATIONS
from api.schemas.fields import NoParameters
from pipelines.search_results import CardRequest, find_cards
from pipelines.statistics import list_latest_bundles
from storage.errors import TimeLimitExceeded, Unauthorized, Unavailable
from storage.model import REPLICAS
from storage.search.grammar.parser import parse_query
from web.pages import PageContext, auth_origin, page

LATEST = 8


@page("GET", "/", may_lag=True)
def show_home(context: PageContext[NoParameters]) -> Response:
    """Show what the store holds, and where to go from here; counts and bundles like the API."""
    values: dict[str, Any] = {}
    if context.may("get_bundles_all"):
        counts = context.site.statistics.read().counts
        values = {
            "counts": counts,
            "in_step": len(set(counts.bundles.values())) == 1,
            "bundles": max(counts.bundles.values()),
            "files": max(counts.files.values()),
        }
    if context.may("post_search"):
        values |= _find_latest(context)
    settings = context.services.settings
    return context.render("home.html", settings.web_name, base=context.base, **values)


def _find_latest(context: PageContext[NoParameters]) -> dict[str, Any]:
    """Return the latest bundles as cards; without their metadata if no search engine answers."""
    settings = context.services.settings
    request = CardRequest(
        parse_query({}), settings.web_title_fields, settings.web_card_fields, size=LATEST
    )
    try:
        return {"cards": find_cards(context.stores, REPLICAS[0], request).cards}
    except (Unavailable, TimeLimitExceeded):
        return {"latest": list_latest_bundles(context.stores, REPLICAS[0], limit=LATEST)}


CLIENT = Path(__file__).parent.parent / "client"
CLIENT_FILES = ("pyproject.toml", "README.md", "store_client/**/*")


@page("GET", "/client.zip")
def get_client(context: PageContext[NoParameters]) -> Response:
    """Send the client of this store's version: `pip install <base URL>/client.zip`."""
    response = Response(_pack_client(), mimetype="application/zip")
    response.headers["Content-Disposition"] = "attachment; filename=client.zip"
    return response


@cache
def _pack_client() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for pattern in CLIENT_FILES:
            for path in sorted(CLIENT.glob(pattern)):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, Path("client") / path.relative_to(CLIENT))
    return packed.getvalue()


@page("GET", "/docs")
def show_reference(context: PageContext[NoParameters]) -> Response:
    """Show the API reference; without JavaScript, the list of operations."""
    # The page reads the authorization service's discovery document.
    connect = auth_origin(context.site)
    return context.render("docs.html", "API reference", connect=connect, operations=OPERATIONS)


@page("GET", "/docs/token", login=True)
def get_token(context: PageContext[NoParameters]) -> Response:
    """Return the visitor's access token, for requests that they try out on the reference page.

    Other sites cannot read it: there is no CORS, and the cookie is SameSite=Lax.
    """
    if context.session is None:
        raise Unauthorized("Log in first.")
    response = Response(context.session.token, mimetype="text/plain")
    response.headers["Cache-Control"] = "no-store"
    return response
