"""Patches of large manifests, also concurrent ones."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import bundles, sweeps
from pipelines.bundles import BundleDraft, BundlePatch, EntryRemoval, NewEntry
from pipelines.flow import Step
from pipelines.formats import version_from_us, version_to_us
from pipelines.idempotency import IdempotentRequest, find_stored_response
from pipelines.limits import SEGMENT_ENTRIES
from pipelines.manifests import WriteResult
from storage import keys
from storage.catalog import bundles as catalog_bundles
from storage.catalog import jobs
from storage.errors import ConflictError, DomainError, Invalid, NotFoundError
from storage.model import FQID, Job, ManifestEntry
from storage.stores import Stores
from tests.builders import make_file, new_uuid, version
from tests.pipelines.interleavings import play

AUTHOR = "depositor@example.org"
Line = tuple[str, FQID, bool]


@pytest.fixture(scope="module")
def files(race_stores: Stores) -> list[FQID]:
    return [make_file(race_stores, text, everywhere=True) for text in (b"one", b"two")]


def deposit(stores: Stores, lines: list[Line]) -> FQID:
    fqid = FQID(new_uuid(), version())
    bundles.put(stores, BundleDraft(fqid, "aws", 1, [NewEntry(*line) for line in lines]), AUTHOR)
    return fqid


def patched(
    stores: Stores,
    fqid: FQID,
    *,
    add: list[Line] | None = None,
    remove: list[Line] | None = None,
    key: str | None = None,
) -> WriteResult:
    patch = BundlePatch(
        fqid,
        "aws",
        [NewEntry(*line) for line in add or []],
        [EntryRemoval(*line) for line in remove or []],
    )
    asked = None if key is None else IdempotentRequest(AUTHOR, key, bundles.patch_digest(patch))
    return bundles.patch_bundle(stores, patch, AUTHOR, repeatable=asked)


def lines_of(stores: Stores, fqid: FQID) -> list[Line]:
    bundle = bundles.find(stores, "aws", fqid.uuid, fqid.version)
    found: list[ManifestEntry] = []
    while len(found) < bundle.file_count:
        found += bundles.read_entries(stores, bundle, len(found), 700)
    return [(entry.name, entry.file, entry.indexed) for entry in found]


def segments_of(stores: Stores, fqid: FQID) -> list[int]:
    bundle = bundles.find(stores, "aws", fqid.uuid, fqid.version)
    with stores.catalog.read() as tx:
        return [run.segment_id for run in catalog_bundles.list_segments(tx, bundle.id)]


@pytest.mark.spec("BUN-45")
def test_changed_file_costs_one_segment_and_no_call_per_file(
    race_stores: Stores, files: list[FQID]
) -> None:
    lines: list[Line] = [(f"f{place}", files[0], False) for place in range(20_000)]
    fqid = deposit(race_stores, lines)
    written = patched(race_stores, fqid, remove=[lines[5_000]])
    assert lines_of(race_stores, written.fqid) == lines[:5_000] + lines[5_001:]
    before, after = (segments_of(race_stores, each) for each in (fqid, written.fqid))
    assert len(before) == len(after) == 20
    assert len(set(after) - set(before)) == 1
    added: Line = ("more", files[1], True)
    again = patched(race_stores, written.fqid, add=[added])
    assert lines_of(race_stores, again.fqid)[-1] == added
    assert len(set(segments_of(race_stores, again.fqid)) - set(after)) == 1


@pytest.mark.spec("BUN-47")
def test_patched_record_lists_all_entries_and_its_parent(
    race_stores: Stores, files: list[FQID]
) -> None:
    fqid = deposit(race_stores, [("a", files[0], False)])
    written = patched(race_stores, fqid, add=[("b", files[1], True)])
    record = b"".join(race_stores.replicas["aws"].read(keys.record_key("bundle", written.fqid)))
    assert written.manifest in record
    assert f'"parent":"{fqid.version}"'.encode() in record


@pytest.mark.spec("BUN-47")
@given(st.data())
def test_many_patches_end_at_list_limit(
    race_stores: Stores, files: list[FQID], data: st.DataObject
) -> None:
    count = data.draw(st.sampled_from([1, 3, SEGMENT_ENTRIES - 1, SEGMENT_ENTRIES, 1_500, 2_100]))
    lines: list[Line] = [(f"f{place}", files[place % 2], place % 3 == 0) for place in range(count)]
    fqid = deposit(race_stores, lines)
    for step in range(data.draw(st.integers(1, 4))):
        gone = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=min(len(lines), 8)))
        if data.draw(st.booleans()):
            gone |= set(range(0, len(lines), 2)) if len(lines) < 1_000 else gone
        fresh: list[Line] = [
            (f"n{step}/{place}", files[0], True)
            for place in range(data.draw(st.sampled_from([0, 1, 30, 1_000])))
        ]
        rest = [line for place, line in enumerate(lines) if place not in gone]
        if not rest and not fresh:
            continue
        fqid = patched(race_stores, fqid, add=fresh, remove=[lines[place] for place in gone]).fqid
        lines = rest + fresh
        assert lines_of(race_stores, fqid) == lines


def settled(stores: Stores, fqid: FQID) -> None:
    """Complete what was reserved, as the clock and the workers would."""
    row = Job("publish", "aws", f"bundle:{fqid}")
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        claim = jobs.claim(tx, row, token="end", lease_s=60, max_claims=99)
    assert claim is not None
    sweeps.complete_reservation(stores, claim, lambda _n: None)


@pytest.mark.spec("BUN-37")
def test_two_patches_of_one_version_make_two_versions(
    race_stores: Stores, files: list[FQID]
) -> None:
    fqid = deposit(race_stores, [("a", files[0], False)])
    ends = play(
        race_stores,
        tuple("abab" * 2),
        {
            "a": lambda stores: patched(stores, fqid, add=[("b", files[0], False)]),
            "b": lambda stores: patched(stores, fqid, add=[("c", files[0], False)]),
        },
    )
    made = {end.fqid.version for end in ends.values()}
    assert len(made) == 2
    assert all(one > fqid.version for one in made)


@pytest.mark.spec("BUN-44")
@pytest.mark.parametrize("order", ["aaabbb", "ababab", "aabbab", "baabab", "abbbaa"])
def test_concurrent_repeats_make_one_version(
    race_stores: Stores, files: list[FQID], order: str
) -> None:
    fqid = deposit(race_stores, [("a", files[0], False)])
    asked = partial(patched, fqid=fqid, add=[("b", files[0], False)], key=new_uuid())
    ends = play(race_stores, tuple(order), {"a": asked, "b": asked})
    assert len({end.fqid for end in ends.values()}) == 1
    assert sum(bool(end.jobs) for end in ends.values()) == 1


@pytest.mark.spec("BUN-47")
@pytest.mark.parametrize("moves", [1, 2])
def test_repeat_completes_request_of_dead_writer(
    race_stores: Stores, files: list[FQID], moves: int
) -> None:
    fqid = deposit(race_stores, [("a", files[0], False)])
    asked = partial(patched, fqid=fqid, add=[("b", files[0], False)], key=new_uuid())
    play(race_stores, ("a",) * moves, {"a": asked})
    again = asked(race_stores)
    assert lines_of(race_stores, again.fqid) == [("a", files[0], False), ("b", files[0], False)]
    assert asked(race_stores).fqid == again.fqid


@pytest.mark.spec("BUN-46")
@pytest.mark.parametrize("order", ["taaa", "ataa", "aata", "aaat"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_tombstone_beside_a_patch_hides_what_it_names(
    race_stores: Stores, files: list[FQID], order: str, whole: bool
) -> None:
    fqid = deposit(race_stores, [("a", files[0], False)])

    def bury(stores: Stores) -> str:
        bundles.delete(
            stores, "gcp", fqid.uuid, None if whole else fqid.version, reason="x", author=AUTHOR
        )
        return "buried"

    ends = play(
        race_stores,
        tuple(order),
        {"a": lambda stores: patched(stores, fqid, add=[("b", files[0], False)]), "t": bury},
    )
    assert ends["t"] == "buried"
    end = ends["a"]
    assert isinstance(end, WriteResult | NotFoundError | ConflictError)
    with pytest.raises(NotFoundError):
        bundles.find(race_stores, "aws", fqid.uuid, fqid.version)
    seen = _found(race_stores, fqid.uuid)
    # A patch that began before its parent was buried is a version of its own.
    assert (seen is not None) == (isinstance(end, WriteResult) and not whole)


@pytest.mark.spec("BUN-46")
@pytest.mark.parametrize("order", ["aattta", "atttaa", "aaattt"])
def test_the_record_of_what_was_buried_before_it_was_seen_is_copied_too(
    race_stores: Stores, files: list[FQID], order: str
) -> None:
    fqid = deposit(race_stores, [("a", files[0], False)])

    def bury(stores: Stores) -> str:
        bundles.delete(stores, "gcp", fqid.uuid, None, reason="x", author=AUTHOR)
        return "buried"

    asked = partial(patched, fqid=fqid, add=[("b", files[0], False)])
    play(race_stores, tuple(order), {"a": asked, "t": bury})
    with race_stores.catalog.write() as tx:
        rows = [row for row, *_ in jobs.take_due(tx, Step.SYNC, limit=10_000, resend=True)]
    ours = sorted(row.ref for row in rows if fqid.uuid in row.ref)
    assert ours
    assert all(ref.startswith(f"bundle:{fqid.uuid}.") for ref in ours), ours


def _found(stores: Stores, uuid: str) -> str | None:
    try:
        return bundles.find(stores, "aws", uuid, None).fqid.version
    except DomainError:
        return None


@pytest.mark.spec("BUN-47")
def test_the_last_moment_there_is_cannot_be_patched(race_stores: Stores, files: list[FQID]) -> None:
    fqid = FQID(new_uuid(), "9999-12-31T235959.999999Z")
    entry = NewEntry("a", files[0], False)
    bundles.put(race_stores, BundleDraft(fqid, "aws", 1, [entry]), AUTHOR)
    with pytest.raises(ConflictError, match="no later version"):
        patched(race_stores, fqid)


@pytest.mark.spec("BUN-37")
def test_patch_is_later_than_versions_written_in_advance(
    race_stores: Stores, files: list[FQID]
) -> None:
    first = version_to_us("2999-12-31T235959.000000Z")
    uuid, entry = new_uuid(), NewEntry("a", files[0], False)
    names = [FQID(uuid, version_from_us(first + place)) for place in range(70)]
    for name in names:
        bundles.put(race_stores, BundleDraft(name, "aws", 1, [entry]), AUTHOR)
    made = patched(race_stores, names[0]).fqid
    assert names[-1].version < made.version < version_from_us(first + 200)


@pytest.mark.spec("BUN-47")
def test_a_reservation_of_a_patch_is_completed_from_its_row(
    race_stores: Stores, files: list[FQID]
) -> None:
    fqid = deposit(race_stores, [("a", files[0], False)])
    key = new_uuid()
    asked = partial(patched, fqid=fqid, add=[("b", files[1], True)], key=key)
    play(race_stores, ("a",), {"a": asked})
    with race_stores.catalog.read() as tx:
        made = FQID.parse(find_stored_response(tx, _asked(fqid, files[1], key)) or "")
    settled(race_stores, made)
    assert lines_of(race_stores, made) == [("a", files[0], False), ("b", files[1], True)]


def _asked(fqid: FQID, file: FQID, key: str) -> IdempotentRequest:
    patch = BundlePatch(fqid, "aws", [NewEntry("b", file, True)], [])
    return IdempotentRequest(AUTHOR, key, bundles.patch_digest(patch))


@pytest.mark.spec("BUN-34")
@pytest.mark.parametrize("name", ["é", "é/b", "é/b/c"])
def test_added_names_clash_in_any_unicode_form(
    race_stores: Stores, files: list[FQID], name: str
) -> None:
    kept: Line = ("e\u0301/b", files[0], False)
    fqid = deposit(race_stores, [kept])
    with pytest.raises(Invalid) as caught:
        patched(race_stores, fqid, add=[(name, files[1], False)])
    assert caught.value.code == "duplicate_filename"
    beside: Line = ("é/c", files[1], False)
    written = patched(race_stores, fqid, add=[beside])
    assert lines_of(race_stores, written.fqid) == [kept, beside]
    # It goes by the name that it was given, and by no other.
    other = patched(race_stores, written.fqid, remove=[("é/b", files[0], False)])
    assert lines_of(race_stores, other.fqid) == [kept, beside]
