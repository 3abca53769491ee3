"""People of the tour: an operator lets two in, they log in as anybody does, and each may as much as
the policies say, as long as they say so.
"""

import secrets
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from ops.demo.application import Application, NoTokens, Tokens, bearer
from ops.demo.browser import Browser
from ops.demo.depositing import CREATOR_UID, new_version
from ops.demo.report import Report
from ops.demo.service import Service
from ops.demo.stage import Stage

READER, INGESTER = EMAILS = ("reader@example.org", "ingester@example.org")
ROLE = "store_ingest"


def tell(stage: Stage, store: Service, entry: Mapping[str, Any], report: Report) -> None:
    """This part of the tour; the entry is one that bundles can be made of."""
    accounts = Service.open(stage.auth, stage.token)
    application = Application.of(stage.auth)
    try:
        _People(store, accounts, application, entry, report).tell(stage)
    finally:
        accounts.http.close()
        application.http.close()


@dataclass(frozen=True)
class _People:
    """The store and the service that knows its users, both as an administrator reaches them."""

    store: Service
    accounts: Service
    application: Application
    entry: Mapping[str, Any]
    report: Report

    def tell(self, stage: Stage) -> None:
        """Step by step."""
        passwords = admit(stage, EMAILS)
        self._give_role()
        reader, ingester = (self._logged_in(email, passwords[email]) for email in EMAILS)
        self._expect_rights(reader, ingester)
        ingester = self._expect_refresh(ingester)
        self._expect_disabled(ingester)
        self._expect_revoked(reader)

    def _give_role(self) -> None:
        path = f"/user/{INGESTER}/roles"
        self.accounts.call("PUT", path, params={"action": "add"}, json={"roles": [ROLE]})

    def _logged_in(self, email: str, password: str) -> Tokens:
        browser = Browser()
        try:
            tokens = self.application.log_in(lambda url: log_in(browser, url, email, password))
        finally:
            browser.close()
        whose = self.application.whose(tokens)
        self.report.expect(f"{email} logs in with a browser without scripts", whose == email)
        return tokens

    def _expect_rights(self, reader: Tokens, ingester: Tokens) -> None:
        tried, refused = self._try_out(reader), self._write(reader)
        got = tried.status_code, refused.status_code, _code(refused)
        sentence = "the reader may try out a subscription, and not write: 403 forbidden"
        self.report.expect(sentence, got == (200, 403, "forbidden"))
        written = self._write(ingester).status_code
        self.report.expect("the ingester writes a bundle: 201", written == 201)

    def _expect_refresh(self, tokens: Tokens) -> Tokens:
        following = self.application.refresh(tokens)
        new = {following.access, following.refresh}.isdisjoint({tokens.access, tokens.refresh})
        written = self._write(following).status_code
        self.report.expect("refreshed tokens are new, and write as well", new and written == 201)
        return following

    def _expect_disabled(self, ingester: Tokens) -> None:
        self.accounts.call("PUT", f"/user/{INGESTER}", params={"status": "disabled"})
        refused = self._write(ingester)
        got = refused.status_code, _code(refused), self._refreshed(ingester)
        sentence = "disabled, the ingester is refused at the next request: 401 unauthorized"
        self.report.expect(sentence, got == (401, "unauthorized", "400 invalid_grant"))

    def _expect_revoked(self, tokens: Tokens) -> None:
        self.application.revoke(tokens)
        told = self.application.http.get(
            self.application.found["userinfo_endpoint"], headers=bearer(tokens)
        )
        got = told.status_code, self._try_out(tokens).status_code, self._refreshed(tokens)
        sentence = "a login that is given back is good for nothing: 401, 400 invalid_grant"
        self.report.expect(sentence, got == (401, 401, "400 invalid_grant"))

    def _refreshed(self, tokens: Tokens) -> str:
        """Why there are no further tokens; nothing when there are."""
        try:
            self.application.refresh(tokens)
        except NoTokens as error:
            return str(error)
        return ""

    def _try_out(self, tokens: Tokens) -> httpx.Response:
        return self.store.try_once(
            "POST",
            "/subscriptions/dry-run",
            params={"replica": "aws"},
            json={
                "callback_url": str(self.store.http.base_url),
                "jmespath_query": "manifest",
                "bundles": 1,
            },
            headers=bearer(tokens),
        )

    def _write(self, tokens: Tokens) -> httpx.Response:
        return self.store.try_once(
            "PUT",
            f"/bundles/{uuid.uuid4()}",
            params={"version": new_version(), "replica": "aws"},
            json={"creator_uid": CREATOR_UID, "files": [{**self.entry, "indexed": False}]},
            headers=bearer(tokens),
        )


def admit(stage: Stage, emails: Sequence[str]) -> dict[str, str]:
    """Make users as an operator does; their passwords."""
    passwords = {email: secrets.token_urlsafe(12) for email in emails}
    with ThreadPoolExecutor(len(emails)) as pool:
        made = [
            pool.submit(stage.operate, "users", "add", email, typed=password)
            for email, password in passwords.items()
        ]
        for one in made:
            one.result()
    return passwords


def log_in(browser: Browser, url: str, email: str, password: str) -> None:
    """What a person does at the browser: log in and allow access, each if the service asks."""
    page = browser.open(url)
    if any("password" in form.fields for form in page.forms):
        page = browser.send(page, email=email, password=password)
    if any("decision" in form.buttons for form in page.forms):
        browser.send(page, decision="allow")


def _code(response: httpx.Response) -> object:
    return response.json().get("code")
