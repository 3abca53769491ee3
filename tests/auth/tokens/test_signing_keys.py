"""The file of signing keys: rotation, permissions and concurrent processes."""

import hashlib
import json
import multiprocessing
import stat
import threading
from pathlib import Path

import pytest

from auth.secret_files import load_secret
from auth.tokens.signing_keys import (
    RETIREMENT_MARGIN_S,
    SigningKeyFile,
    SigningKeys,
    read_keys_until,
    read_signing_keys,
    rotate_key_file,
    seal_key_file,
)
from storage.errors import Invalid, Unavailable
from tests.auth.builders import NOW, segment


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def key_ids(keys: SigningKeys) -> list[str]:
    return [str(key.kid) for key in keys.keys]


def test_first_start_creates_private_file_and_second_reads_it(tmp_path: Path) -> None:
    first = read_signing_keys(tmp_path)
    assert key_ids(read_signing_keys(tmp_path)) == key_ids(first)
    assert first.algorithms == ("RS256",)
    assert mode(tmp_path / "secrets") == 0o700
    assert [(file.name, mode(file)) for file in (tmp_path / "secrets").iterdir()] == [
        ("signing-keys.json", 0o600)
    ]


def _start(home: str, answers: "multiprocessing.Queue[tuple[list[str], bytes]]") -> None:
    answers.put((key_ids(read_signing_keys(Path(home))), load_secret(Path(home))))


def test_processes_that_start_together_use_the_same_keys(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[tuple[list[str], bytes]] = context.Queue()
    starts = [context.Process(target=_start, args=(str(tmp_path), answers)) for _ in range(3)]
    for process in starts:
        process.start()
    found = [answers.get(timeout=60) for _ in starts]
    for process in starts:
        process.join()
    assert found[0] == found[1] == found[2]
    assert sorted(file.name for file in (tmp_path / "secrets").iterdir()) == [
        "signing-keys.json",
        "store",
    ]


def test_the_key_id_is_the_thumbprint_of_rfc_7638(tmp_path: Path) -> None:
    public = read_signing_keys(tmp_path).jwks()["keys"][0]
    members = json.dumps({"e": public["e"], "kty": "RSA", "n": public["n"]}, separators=(",", ":"))
    assert public["kid"] == segment(hashlib.sha256(members.encode()).digest())


def test_published_keys_have_no_private_members(tmp_path: Path) -> None:
    rotate_key_file(tmp_path, "ES256", now=NOW, life_s=60)
    curve, rsa = read_signing_keys(tmp_path).jwks()["keys"]
    assert curve.keys() == {"kty", "crv", "x", "y", "kid", "use", "alg"}
    assert rsa.keys() == {"kty", "n", "e", "kid", "use", "alg"}
    assert (curve["alg"], rsa["alg"]) == ("ES256", "RS256")


@pytest.mark.spec("OID-02")
def test_rotation_keeps_keys_of_valid_tokens(tmp_path: Path) -> None:
    first = key_ids(read_signing_keys(tmp_path))
    second = key_ids(rotate_key_file(tmp_path, "ES256", now=NOW, life_s=3600))
    assert second[1:] == first
    # However often: the first key's tokens live for an hour.
    for number in range(1, 6):
        keys = key_ids(rotate_key_file(tmp_path, "ES256", now=NOW + number, life_s=3600))
    assert keys[-1:] == first
    later = NOW + 3600 + RETIREMENT_MARGIN_S
    assert first[0] not in key_ids(rotate_key_file(tmp_path, "ES256", now=later, life_s=3600))
    assert first[0] not in key_ids(read_signing_keys(tmp_path))
    assert mode(tmp_path / "secrets" / "signing-keys.json") == 0o600


@pytest.mark.spec("OID-02")
def test_key_is_kept_as_long_as_its_longest_token(tmp_path: Path) -> None:
    first = key_ids(read_keys_until(tmp_path, NOW + 10_000_000))
    assert key_ids(read_keys_until(tmp_path, NOW + 5)) == first
    rotate_key_file(tmp_path, "ES256", now=NOW, life_s=60)
    keys = rotate_key_file(tmp_path, "ES256", now=NOW + 10_000_000, life_s=60)
    assert key_ids(keys)[-1:] == first
    gone = rotate_key_file(tmp_path, "ES256", now=NOW + 10_000_000 + RETIREMENT_MARGIN_S, life_s=60)
    assert first[0] not in key_ids(gone)


def test_key_without_expiry_is_kept_for_a_year(tmp_path: Path) -> None:
    first = key_ids(read_signing_keys(tmp_path))
    path = tmp_path / "secrets" / "signing-keys.json"
    path.write_text(json.dumps({"keys": json.loads(path.read_text())["keys"]}))
    read_keys_until(tmp_path, NOW + 5)
    rotate_key_file(tmp_path, "ES256", now=NOW, life_s=60)
    keys = rotate_key_file(tmp_path, "ES256", now=NOW + 365 * 86_400, life_s=60)
    assert key_ids(keys)[-1:] == first


def test_after_a_leak_no_key_but_the_new_one_is_left(tmp_path: Path) -> None:
    first = key_ids(read_signing_keys(tmp_path))
    keys = key_ids(rotate_key_file(tmp_path, now=NOW, life_s=3600, drop=True))
    assert len(keys) == 1
    assert keys != first


GIVEN = "a secret that an operator gave"


def test_keys_are_sealed_with_secret_kept_elsewhere(tmp_path: Path) -> None:
    keys = read_signing_keys(tmp_path, GIVEN)
    text = (tmp_path / "secrets" / "signing-keys.json").read_text()
    assert json.loads(text).keys() == {"sealed"}
    assert key_ids(SigningKeyFile(tmp_path, GIVEN).read()) == key_ids(keys)
    rotated = rotate_key_file(tmp_path, "ES256", now=NOW, life_s=60, given=GIVEN)
    assert key_ids(read_signing_keys(tmp_path, GIVEN)) == key_ids(rotated)
    for other in ("", "another operator's secret"):
        with pytest.raises(Unavailable):
            read_signing_keys(tmp_path, other)
        with pytest.raises(Unavailable):
            rotate_key_file(tmp_path, now=NOW, life_s=60, given=other)
    # Whoever changed the secret begins anew.
    rotate_key_file(
        tmp_path, "ES256", now=NOW, life_s=60, given="another operator's secret", drop=True
    )
    assert len(read_signing_keys(tmp_path, "another operator's secret").keys) == 1


def test_plain_keys_are_sealed_when_secret_is_set(tmp_path: Path) -> None:
    keys = read_signing_keys(tmp_path)
    path = tmp_path / "secrets" / "signing-keys.json"
    assert not seal_key_file(tmp_path, "")
    assert not seal_key_file(tmp_path, load_secret(tmp_path).decode())
    assert "sealed" not in path.read_text()
    assert seal_key_file(tmp_path, GIVEN)
    assert not seal_key_file(tmp_path, GIVEN)
    assert key_ids(read_signing_keys(tmp_path, GIVEN)) == key_ids(keys)
    assert "kty" not in path.read_text()
    assert mode(path) == 0o600


def test_a_secret_that_was_moved_into_the_setting_opens_what_it_sealed(tmp_path: Path) -> None:
    kept = load_secret(tmp_path).decode()
    (tmp_path / "secrets" / "store").unlink()
    keys = read_signing_keys(tmp_path, kept)
    (tmp_path / "secrets" / "store").write_text(kept)
    assert key_ids(read_signing_keys(tmp_path)) == key_ids(keys)


def test_rotations_at_the_same_time_lose_no_key(tmp_path: Path) -> None:
    read_signing_keys(tmp_path)
    threads = [
        threading.Thread(
            target=rotate_key_file, args=(tmp_path, "ES256"), kwargs={"now": NOW, "life_s": 60}
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(key_ids(read_signing_keys(tmp_path)))) == 9


def test_a_key_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    file = SigningKeyFile(tmp_path)
    first = file.read()
    assert file.read().keys[0].kid == first.keys[0].kid
    rotated = rotate_key_file(tmp_path, "ES256", now=NOW, life_s=60)
    assert key_ids(file.read()) == key_ids(rotated)
    assert file.read() is file.read()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"keys": [{}]}',
        '{"keys": []}',
        '{"keys": [5]}',
        '{"keys": [{}], "until": 5}',
        '{"sealed": "AAAA"}',
        '{"sealed": 5}',
        '{"keys": [{"kty": "oct", "k": "YSBzeW1tZXRyaWMga2V5IG9mIDMyIGJ5dGVzISEhISE"}]}',
    ],
)
def test_invalid_key_file_stops_service_and_stays(text: str, tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "signing-keys.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(Unavailable):
        read_signing_keys(tmp_path)
    assert path.read_text() == text


def test_a_home_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable):
        read_signing_keys(tmp_path / "file" / "home")


def test_a_secret_is_made_once_and_survives(tmp_path: Path) -> None:
    made = load_secret(tmp_path)
    assert load_secret(tmp_path) == made
    assert load_secret(tmp_path, "another") != made
    assert len(made) == 64
    assert mode(tmp_path / "secrets" / "store") == 0o600


def test_configured_secret_wins_and_makes_no_file(tmp_path: Path) -> None:
    assert load_secret(tmp_path, given="an operator's own secret") == b"an operator's own secret"
    assert not (tmp_path / "secrets").exists()


def test_secret_moved_into_setting_is_the_same(tmp_path: Path) -> None:
    kept = load_secret(tmp_path)
    text = (tmp_path / "secrets" / "store").read_text().strip()
    assert load_secret(tmp_path / "elsewhere", given=text) == kept


def test_a_short_secret_stops_the_start_and_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        load_secret(tmp_path, given="hunter2")
    assert "STORE_SECRET_KEY" in caught.value.detail
    assert "hunter2" not in caught.value.detail


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "A", ".lock", "x" * 65])
def test_a_secrets_name_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name"):
        load_secret(tmp_path, name)


def test_an_emptied_secret_is_not_used(tmp_path: Path) -> None:
    load_secret(tmp_path)
    (tmp_path / "secrets" / "store").write_text("\n")
    with pytest.raises(Unavailable):
        load_secret(tmp_path)
