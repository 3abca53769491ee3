"""Write screenshots of all pages, light and dark: `python -m tests.real.browser.screenshots`."""

import io
import tempfile
from pathlib import Path

import click
from PIL import Image
from playwright.sync_api import Page

from ops.procfile import ROOT
from tests.engines import packages
from tests.real.browser import chromium
from tests.real.browser.site import Site, running_site
from tests.real.browser.visits import list_visits

TARGET = ROOT / "docs" / "images"
GALLERY = ROOT / "docs" / "screenshots.md"
WIDTH, HIGHEST = 1200, 1500
COLOURS = 64
"""Enough for pages of text; a picture is a quarter of what it would be."""
SCHEMES = ("light", "dark")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--to", "target", type=click.Path(path_type=Path), default=TARGET)
@click.option("--width", default=WIDTH, show_default=True)
def write(names: tuple[str, ...], target: Path, width: int) -> None:
    """Write screenshots of these visits, all of them by default."""
    target.mkdir(parents=True, exist_ok=True)
    program = packages.found("chromium")
    with (
        tempfile.TemporaryDirectory() as home,
        chromium.running_browser(program) as browser,
        running_site(Path(home), browser) as site,
    ):
        for name in names or list_visits():
            for scheme in SCHEMES:
                path = target / name_picture(name, scheme)
                path.write_bytes(take(site, name, scheme, width))
    if target == TARGET:
        GALLERY.write_text(build_gallery(), encoding="utf-8")
    total = sum(path.stat().st_size for path in target.glob("*.png"))
    click.echo(f"{target}: {total:,} bytes")


def name_picture(visit: str, scheme: str) -> str:
    """Return the file name of a picture."""
    return f"{visit.replace(' ', '_')}_{scheme}.png"


def build_gallery() -> str:
    """Build the page of the documentation that shows all pictures."""
    rows = "".join(
        f"| {name.replace('_', ' ')} | "
        + " | ".join(f"![{name}, {one}](images/{name_picture(name, one)})" for one in SCHEMES)
        + " |\n"
        for name in sorted(list_visits())
    )
    return (
        "# Screenshots\n\nEvery page of the store, as `make screenshots` took it at 1,200 px."
        " [In a browser](browser.md) says what they are for.\n\n"
        f"| page | light | dark |\n|---|---|---|\n{rows}"
    )


def take(site: Site, name: str, scheme: str, width: int) -> bytes:
    """Take a picture of a page as its visitor sees it."""
    person, where = list_visits()[name]
    context = site.open_context(
        chromium.Watch(site.hosts), person=person, width=width, scheme=scheme
    )
    page = context.new_page()
    page.goto(where(site))
    chromium.settle(page)
    picture = page.screenshot(full_page=True, clip=_size_of(page, width))
    context.close()
    return compress(picture)


def _size_of(page: Page, width: int) -> dict[str, float]:
    height = min(HIGHEST, page.evaluate("document.documentElement.scrollHeight"))
    return {"x": 0, "y": 0, "width": width, "height": height}


def compress(picture: bytes) -> bytes:
    """Reduce a PNG to a palette."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    reduced = image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    out = io.BytesIO()
    reduced.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    write()
