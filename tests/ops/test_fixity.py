"""The fixity report: written, checked, and verified with published keys."""

import hashlib
import json
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from auth.tokens.issuance import sign_claims
from auth.tokens.signing_keys import SigningKeys, read_signing_keys
from ops.integrity import REPORT_TYPE, BrokenReport, check_report
from storage import keys
from storage.model import FQID
from tests.builders import make_file
from tests.damage import damage
from tests.ops.commands import opened, run, typed

pytestmark = pytest.mark.spec("OPS-27")


def public_keys(home: Path) -> KeySet:
    return KeySet.import_key_set(json.loads(json.dumps(read_signing_keys(home).jwks())))


def report_lines(home: Path) -> list[str]:
    run("fixity-report", "--output", str(home / "report.jws"))
    return (home / "report.jws").read_text().splitlines()


def test_lists_every_object_with_sha256_and_time_of_verification(home: Path, bundle: FQID) -> None:
    (line,) = report_lines(home)
    token = jwt.decode(line, public_keys(home), algorithms=["RS256"])
    assert token.header["typ"] == REPORT_TYPE
    objects = token.claims["objects"]
    assert {one["replica"] for one in objects} == {"aws", "gcp"}
    assert all(len(one["sha256"]) == 64 and one["verified"] for one in objects)
    stores = opened(home)
    here = [one for one in objects if one["replica"] == "aws"]
    for one in here:
        data = b"".join(stores.replicas["aws"].read(one["key"]))
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
    assert keys.record_key("bundle", bundle) in {one["key"] for one in here}
    assert token.claims["replicas"]["aws"]["objects"] == len(here) == 3
    stores.catalog.close()


def test_check_accepts_an_intact_report_and_counts(home: Path, bundle: FQID) -> None:
    report_lines(home)
    shown = run("fixity-report", "--check", str(home / "report.jws"))
    assert "5 objects in 1 lines, 0 damaged" in shown


def test_a_report_that_cannot_be_written_is_named_and_leaves_nothing(
    home: Path, bundle: FQID
) -> None:
    report, part = home / "report.jws", home / "report.jws.part"
    part.symlink_to("/dev/full")
    result = typed("fixity-report", "--output", str(report))
    assert result.exit_code == 1
    assert f"{report} cannot be written: No space left on device" in result.output
    assert not report.exists()
    assert not part.is_symlink()


@pytest.fixture
def paged(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A report of several lines."""
    monkeypatch.setattr("ops.integrity.OBJECTS_PER_LINE", 2)
    stores = opened(home)
    for number in range(5):
        make_file(stores, b"%d" % number, everywhere=True)
    stores.catalog.close()
    return report_lines(home)


def test_a_long_report_is_checked_line_by_line(home: Path, paged: list[str]) -> None:
    assert len(paged) == 10
    assert check_report(paged, read_signing_keys(home))["listed"] == 20


@pytest.mark.parametrize(
    "broken",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[1:],
        lambda lines: lines[:3] + lines[4:],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [*lines, lines[0]],
        lambda lines: [lines[0][:-4] + "AAAA", *lines[1:]],
        lambda lines: ["nothing", *lines[1:]],
        lambda lines: [],
    ],
)
def test_check_refuses_a_report_that_was_changed(home: Path, paged: list[str], broken) -> None:
    with pytest.raises(BrokenReport):
        check_report(broken(paged), read_signing_keys(home))
    (home / "report.jws").write_text("\n".join(broken(paged)))
    refused = typed("fixity-report", "--check", str(home / "report.jws"))
    assert refused.exit_code == 1
    assert "report.jws" in refused.output


def test_check_refuses_the_signature_of_another_key(home: Path, paged: list[str]) -> None:
    other = SigningKeys((RSAKey.generate_key(2048, auto_kid=True),))
    with pytest.raises(BrokenReport, match="No key of this service"):
        check_report([sign_claims(other, {"page": 1}, kind=REPORT_TYPE)], read_signing_keys(home))


def test_rejects_token_as_report(home: Path) -> None:
    token = sign_claims(read_signing_keys(home), {"page": 1})
    with pytest.raises(BrokenReport, match="typ"):
        check_report([token], read_signing_keys(home))


def test_a_damaged_object_is_marked(home: Path, bundle: FQID) -> None:
    stores = opened(home)
    key = keys.record_key("bundle", bundle)
    damage(stores, "aws", key, "emptied")
    stores.catalog.close()
    assert typed("verify").exit_code == 1
    (line,) = report_lines(home)
    objects = jwt.decode(line, public_keys(home), algorithms=["RS256"]).claims["objects"]
    assert [one["key"] for one in objects if "damage" in one] == [key]
