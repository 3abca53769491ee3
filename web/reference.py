"""The API reference: Swagger UI on the store's own definition."""

from flask import Response

from api.app import OPERATIONS
from api.schemas.fields import NoParameters
from storage.errors import Unauthorized
from web.pages import PageContext, page


@page("GET", "/docs")
def show_reference(context: PageContext[NoParameters]) -> Response:
    """Show the API reference; without JavaScript, the list of operations."""
    return context.render("docs.html", "API reference", operations=OPERATIONS)


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
