"""The receiver, over a real socket."""

import httpx

from ops.demo.receiver import receiving

BODY = {"event_type": "CREATE", "match": {"bundle_uuid": "u", "bundle_version": "v"}}


def test_what_comes_is_remembered_by_path_and_type() -> None:
    with receiving(b"key") as (url, inbox):
        assert httpx.post(f"{url}/one", json=BODY, trust_env=False).status_code == 200
    assert inbox.seen("/one") == {"u.v"}
    assert inbox.seen("/one", "TOMBSTONE") == set()
    assert inbox.seen("/two") == set()


def test_what_is_not_signed_is_kept_apart() -> None:
    with receiving(b"key") as (url, inbox):
        httpx.post(f"{url}/one", json=BODY, trust_env=False)
    assert [notice.faults for notice in inbox.forged()] == [
        ("digest", "signature", "webhook-signature")
    ]
