"""The home page."""

from flask import Response

from api.schemas.fields import NoParameters
from pipelines.statistics import list_latest_bundles
from storage.model import REPLICAS
from web.pages import PageContext, page

LATEST = 10


@page("GET", "/")
def show_home(context: PageContext[NoParameters]) -> Response:
    """Show what the store holds, and where to go from here."""
    counts = context.site.statistics.read().counts
    differing = len({counts.bundles[replica] for replica in REPLICAS}) > 1
    latest = list_latest_bundles(context.stores, REPLICAS[0], limit=LATEST)
    settings = context.services.settings
    return context.render(
        "home.html",
        settings.web_name,
        counts=counts,
        in_step=not differing,
        bundles=max(counts.bundles.values()),
        files=max(counts.files.values()),
        latest=latest,
        base=context.base,
    )
