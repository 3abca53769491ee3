"""The home page, and the client as an archive that pip installs."""

import io
import zipfile
from functools import cache
from pathlib import Path

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
