"""Where each page is visited, so that a new page without a visit is noticed."""

from collections.abc import Callable, Mapping

from tests.real.browser.site import ADMIN, GROUP, READER, ROLE, Site
from web.app import PAGE_MODULES
from web.pages import Page, list_pages

Visits = Callable[[Site], str]

VISITS: Mapping[str, Visits] = {
    "show_home": lambda _: "/",
    "show_reference": lambda _: "/docs",
    "show_bundle": lambda site: f"/bundles/{site.bundle.uuid}?version={site.bundle.version}",
    "list_bundle_versions": lambda site: f"/bundles/{site.bundle.uuid}/versions",
    "compare_bundle_versions": lambda site: (
        f"/bundles/{site.bundle.uuid}/diff?from={site.first_version}&to={site.bundle.version}"
    ),
    "confirm_withdrawal": lambda site: f"/bundles/{site.bundle.uuid}/withdraw",
    "list_collections": lambda _: "/collections",
    "show_collection": lambda site: _collection(site),
    "edit_collection": lambda site: _collection(site, "/edit"),
    "confirm_collection_deletion": lambda site: _collection(site, "/delete"),
    "show_file": lambda site: f"/files/{site.file.uuid}?version={site.file.version}",
    "show_account": lambda _: "/account",
    "show_own_permissions": lambda _: "/account/permissions",
    "show_search": lambda _: "/search?q=homo",
    "list_subscriptions": lambda _: "/subscriptions",
    "show_new_subscription": lambda _: "/subscriptions/new",
    "show_subscription": lambda site: f"/subscriptions/{site.subscription}",
    "confirm_replay": lambda site: f"/subscriptions/{site.subscription}/replay",
    "confirm_deletion": lambda site: f"/subscriptions/{site.subscription}/delete",
    "list_deliveries": lambda site: f"/subscriptions/{site.subscription}/deliveries",
    "show_delivery": lambda site: f"/subscriptions/{site.subscription}/deliveries/{site.delivery}",
    "show_administration": lambda _: "/admin",
    "list_users": lambda _: "/admin/users",
    "show_user": lambda _: f"/admin/users/{READER}",
    "edit_user_policy": lambda _: f"/admin/users/{READER}/policy",
    "list_groups": lambda _: "/admin/groups",
    "show_group": lambda _: f"/admin/groups/{GROUP}",
    "confirm_group_deletion": lambda _: f"/admin/groups/{GROUP}/delete",
    "edit_group_policy": lambda _: f"/admin/groups/{GROUP}/policy",
    "list_roles": lambda _: "/admin/roles",
    "show_role": lambda _: f"/admin/roles/{ROLE}",
    "show_new_role": lambda _: "/admin/new-role",
    "confirm_role_deletion": lambda _: f"/admin/roles/{ROLE}/delete",
    "edit_role_policy": lambda _: f"/admin/roles/{ROLE}/policy",
    "list_service_accounts": lambda _: "/admin/service-accounts",
    "confirm_key_removal": lambda _: (
        "/admin/service-accounts/remove?email=robot%40example.org&kid=1"
    ),
    "list_applications": lambda _: "/admin/applications",
    "confirm_application_removal": lambda _: "/admin/applications/remove?id=notebook",
    "show_audit_log": lambda _: "/admin/audit",
    "explain_permission": lambda _: f"/admin/why?who={READER}&action=store:PutBundle",
    "list_areas": lambda _: "/areas",
    "show_area": lambda site: f"/areas/{site.own_area}",
    "choose_files": lambda site: f"/areas/{site.own_area}/bundle",
    "confirm_area_deletion": lambda site: f"/areas/{site.own_area}/delete",
    "list_deposits": lambda _: "/deposits",
    "show_deposit": lambda site: f"/deposits/{site.deposit}",
    "show_status": lambda _: "/status",
    "show_operations": lambda _: "/operations",
}
"""The path of a page by the name of its view, as the administrator sees it."""

NO_PAGES = {
    "log_in": "redirects",
    "download_manifest": "is a table to download",
    "download_file_list": "is a table to download",
    "download_archive": "is an archive to download",
    "show_metadata": "is a JSON document",
    "show_datacite": "is a JSON document",
    "send_feed": "is an Atom feed",
    "send_catalog": "is a JSON document",
    "get_client": "is an archive to download",
    "show_preview": "is in the frame of a file's page, where no script runs, not even a test's",
    "download_file": "redirects to the content",
    "complete_login": "redirects",
    "get_token": "answers plain text to scripts",
}
"""Views whose answer is nothing to look at, and why."""

VARIANTS: Mapping[str, tuple[str, Visits]] = {
    "home of a visitor": ("", lambda _: "/"),
    "reference of a visitor": ("", lambda _: "/docs"),
    "home of a reader": (READER, lambda _: "/"),
    "search without results": ("", lambda _: "/search?q=unicorn"),
    "search with a wrong field": ("", lambda _: "/search?q=organizm:mouse"),
    "withdrawn bundle": (ADMIN, lambda site: f"/bundles/{site.withdrawn.uuid}"),
    "bundle of a visitor": ("", lambda site: f"/bundles/{site.bundle.uuid}"),
    "page for others": (READER, lambda _: "/operations"),
    "no such page": ("", lambda _: "/nowhere"),
    "bad input": ("", lambda _: "/login/callback?state=x"),
}
"""Further sights of pages: who looks, and where."""


def _collection(site: Site, part: str = "") -> str:
    return f"/collections/{site.collection.uuid}{part}?version={site.collection.version}"


def list_visits() -> dict[str, tuple[str, Visits]]:
    """Return who looks where, by the name of the visit."""
    own = {name: (ADMIN, where) for name, where in VISITS.items()}
    return {**own, **VARIANTS}


def list_shown() -> list[Page]:
    """Return the pages that a browser can be sent to."""
    assert PAGE_MODULES
    return [one for one in list_pages() if one.method == "GET" and one.name not in NO_PAGES]
