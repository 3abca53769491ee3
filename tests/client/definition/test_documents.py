"""Definitions are fetched, kept, compared after an hour, and repaired."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from store_client.configuration import Configuration
from store_client.definition import ApiDefinition, cached_definition, clear_cache, load_definition
from store_client.errors import StoreError, Unreachable
from store_client.http import HttpSession, StaticToken
from tests.client.definition.documents import document, operation, served
from tests.client.scripted_server import Answer, Script, scripted


@dataclass
class Site:
    """A store and its authorization service, what a user keeps, and a clock."""

    store: Script
    auth: Script
    config: Configuration
    session: HttpSession
    now: float = 1_000_000.0
    seen: list[str] = field(default_factory=list)

    def load(self, *, fresh: bool = False) -> ApiDefinition:
        return load_definition(self.session, self.config, now=lambda: self.now, fresh=fresh)

    def serve(self, *names: str, etag: str = "") -> None:
        paths = {f"/{name}": {"get": operation(name)} for name in names}
        self.store.say(served(document(paths, auth=self.auth.url), etag))

    @property
    def file(self) -> Path:
        [found] = self.config.definitions.glob("*.json")
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with scripted() as store, scripted() as auth:
        config = Configuration(tmp_path, tmp_path / "cache", store.url)
        with store.session(tokens=StaticToken("secret")) as session:
            made = Site(store, auth, config, session)
            made.serve("get_a", "get_b")
            auth.say(served(document({"/users": {"get": operation("get_users")}})))
            yield made


@pytest.mark.spec("CLI-18")
def test_loads_definitions_of_both_services(site: Site) -> None:
    found = site.load()
    assert {(one.name, one.service, one.url) for one in found.operations.values()} == {
        ("get_a", "store", f"{site.store.url}/v1/get_a"),
        ("get_b", "store", f"{site.store.url}/v1/get_b"),
        ("get_users", "auth", f"{site.auth.url}/users"),
    }
    assert (found.title, found.about) == ("A store", "About it.")
    assert (found.auth_url, found.fetched) == (site.auth.url, site.now)


@pytest.mark.spec("CLI-18")
def test_nobodys_token_is_shown_for_it(site: Site) -> None:
    site.load()
    assert site.store.authorizations == [None]
    assert site.auth.authorizations == [None]


@pytest.mark.spec("CLI-18")
def test_definition_is_cached_for_an_hour(site: Site) -> None:
    before = site.load()
    site.now += 3599
    assert site.load() == before == cached_definition(site.config)
    assert len(site.store.came) == len(site.auth.came) == 1


@pytest.mark.spec("CLI-18")
def test_after_an_hour_what_is_unchanged_is_not_sent_again(site: Site) -> None:
    site.serve("get_a", etag='W/"1"')
    before = site.load()
    site.store.say(Answer(304, b""))
    site.now += 3600
    assert site.load() == before
    assert site.store.came[1].headers["if-none-match"] == 'W/"1"'
    assert site.load().fetched == site.now
    assert len(site.store.came) == 2


@pytest.mark.spec("CLI-18")
def test_after_an_hour_what_has_changed_is_known(site: Site) -> None:
    site.load()
    site.serve("get_c")
    site.now += 3600
    assert set(site.load().operations) == {"get_c", "get_users"}


@pytest.mark.spec("CLI-18")
def test_clock_set_back_expires_cache(site: Site) -> None:
    site.load()
    site.now -= 10
    site.load()
    assert len(site.store.came) == 2


@pytest.mark.spec("CLI-18")
def test_fresh_option_skips_cache(site: Site) -> None:
    site.serve("get_a", etag="1")
    site.load()
    site.serve("get_c")
    assert "get_c" in site.load(fresh=True).operations
    assert "if-none-match" not in site.store.came[1].headers


@pytest.mark.spec("CLI-19")
@pytest.mark.parametrize(
    "harm",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace('"paths"', '"pasth"'),
        lambda text: text.replace("Does get_a", "Does get_b"),
        lambda text: text.replace('"operationId": "get_a"', '"operationId": ["get_a"]'),
        lambda text: text.replace('"fetched": 1', '"fetched": "x1'),
        lambda text: json.dumps({**json.loads(text), "form": 99}),
        lambda text: json.dumps({**json.loads(text), "url": "http://other"}),
        lambda text: "[" * 100_000,
        lambda text: "\x00\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_replaces_damaged_cache(site: Site, harm: Any) -> None:
    before = site.load()
    site.file.write_text(harm(site.file.read_text()))
    assert cached_definition(site.config) is None
    assert site.load() == before == cached_definition(site.config)


@pytest.mark.spec("CLI-19")
def test_an_old_copy_serves_while_the_store_cannot_be_reached(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    before = site.load()
    site.now += 7200
    site.store.say(Answer(503))
    site.store.waited.clear()
    with caplog.at_level(logging.WARNING):
        assert site.load() == before
    assert "using the cached definition of" in caplog.text
    assert site.store.waited == []


@pytest.mark.spec("CLI-19")
def test_reports_unreachable_store_without_cache(site: Site) -> None:
    site.store.say(Answer(503))
    with pytest.raises(Unreachable):
        site.load()


@pytest.mark.spec("CLI-20")
@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>Welcome</html>", {"Content-Type": "text/html"}),
        Answer(404, b"", {"Content-Type": "text/html"}),
        Answer(200, b"[1]"),
        Answer(200, b'{"swagger": "2.0"}'),
        Answer(200, b'{"paths": []}'),
        Answer(200, b'{"paths": {"/x": {"get": {"operationId": 7}}}, "info": {}}'),
        Answer(302, b"", {"Location": "/login"}),
        Answer(204, b""),
    ],
)
def test_reports_url_that_is_no_store(site: Site, answer: Answer) -> None:
    site.store.say(answer)
    with pytest.raises(StoreError, match="is not a data store") as told:
        site.load()
    assert site.store.url in str(told.value)
    assert "--url" in told.value.hint
    assert cached_definition(site.config) is None


@pytest.mark.spec("CLI-19")
def test_a_store_without_its_authorization_service_is_of_use(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.auth.say(Answer(500))
    assert set(site.load().operations) == {"get_a", "get_b"}
    assert "authorization service" in caplog.text
    assert site.store.waited == []


@pytest.mark.spec("CLI-19")
def test_uses_cached_authorization_definition_during_outage(site: Site) -> None:
    site.load()
    site.auth.say(Answer(500))
    assert "get_users" in site.load(fresh=True).operations


@pytest.mark.spec("CLI-18")
def test_store_operation_wins_over_authorization_operation(site: Site) -> None:
    site.auth.say(served(document({"/a": {"get": operation("get_a")}})))
    found = site.load()
    assert found.operations["get_a"].service == "store"
    assert found.operations["auth_get_a"].service == "auth"
    assert found.operations["auth_get_a"].name == "auth_get_a"


@pytest.mark.spec("CLI-19")
def test_a_cache_that_cannot_be_written_is_only_slower(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert "get_a" in site.load().operations
    assert "fetched each time" in caplog.text
    assert cached_definition(site.config) is None


@pytest.mark.spec("CLI-21")
def test_the_cache_is_cleared_of_every_store(site: Site, tmp_path: Path) -> None:
    site.load()
    with scripted() as other:
        other.say(served(document({})))
        config = Configuration(tmp_path, tmp_path / "cache", other.url)
        with other.session() as session:
            load_definition(session, config)
    assert clear_cache(site.config) == 2
    assert cached_definition(site.config) is None
    assert clear_cache(site.config) == 0
