"""A browser without scripts: goes where it is sent, keeps cookies, fills in and sends forms."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import httpx


class UnexpectedPage(Exception):
    """The page shows no such form; the text begins with what it does show."""


@dataclass
class Form:
    """A form as its page has it: where it goes, every field with what is in it, and its buttons."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Page:
    """What is shown in the end; of its text the words."""

    url: str
    status: int
    text: str
    forms: tuple[Form, ...]


class Browser:
    """One person's; to be closed."""

    def __init__(self) -> None:
        self._http = httpx.Client(follow_redirects=True, timeout=60.0, trust_env=False)

    def open(self, url: str) -> Page:
        """The page that an address leads to."""
        return _page(self._http.get(url))

    def send(self, page: Page, **typed: str) -> Page:
        """The page that its form leads to, filled in; UnexpectedPage when it has no such fields or
        buttons."""
        for form in page.forms:
            if typed.keys() <= form.fields.keys() | form.buttons:
                headers = {"Origin": _origin(page.url), "Sec-Fetch-Site": "same-origin"}
                data = {**form.fields, **typed}
                url = urljoin(page.url, form.action)
                return _page(self._http.post(url, data=data, headers=headers))
        raise UnexpectedPage(f"no form with {', '.join(typed)} at {page.url}: {page.text[:400]}")

    def close(self) -> None:
        """Forget everything."""
        self._http.close()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Form] = []
        self.words: list[str] = []
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words += data.split()

    def handle_endtag(self, tag: str) -> None:
        self._hidden = self._hidden and tag != "style"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag == "style"
        given: dict[str, Any] = dict(attrs)
        if tag == "form":
            self.found.append(Form(given.get("action") or ""))
        elif tag == "input" and self.found and given.get("name"):
            self.found[-1].fields[given["name"]] = given.get("value") or ""
        elif tag == "button" and self.found and given.get("name"):
            self.found[-1].buttons.add(given["name"])


def _page(response: httpx.Response) -> Page:
    reader = _Reader()
    reader.feed(response.text)
    text, forms = " ".join(reader.words), tuple(reader.found)
    return Page(str(response.url), response.status_code, text, forms)


def _origin(url: str) -> str:
    parts = httpx.URL(url)
    return f"{parts.scheme}://{parts.netloc.decode()}"
