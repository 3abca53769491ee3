"""Waiting for verification, against a store that is played."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from werkzeug.formparser import parse_form_data

from store_client.checksums import hash_bytes
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.errors import Conflict, Damaged, TimedOut
from store_client.http.session import HttpSession
from store_client.transfer.engine import StopSignal
from store_client.uploads.job import upload
from store_client.uploads.options import UploadOptions
from store_client.uploads.plan import UploadReport
from tests.client.upload.directories import aged, filled

Answer = Callable[[httpx.Request], httpx.Response]


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.01)


def staged(url: str, data: bytes) -> dict[str, object]:
    """What a store says of a file in an area."""
    return {"url": url, "checksums": asdict(hash_bytes(data))}


def form_files(request: httpx.Request) -> dict[str, bytes]:
    """The files of a multipart form by their names."""
    body = request.read()
    environ = {
        "wsgi.input": io.BytesIO(body),
        "CONTENT_TYPE": request.headers["Content-Type"],
        "CONTENT_LENGTH": str(len(body)),
        "REQUEST_METHOD": "PUT",
    }
    found = {}
    for file in parse_form_data(environ)[2].getlist("file"):
        with closing(file):
            found[file.filename or ""] = file.read()
    return found


class Played:
    """A store that takes everything but, if it is `refusing`, one file that comes with others; what
    it says of bundles and tasks is the test's to say. `old`: it takes one file at a time. `busy_s`:
    a refused one may be repeated after so many seconds."""

    def __init__(
        self,
        bundle: Iterator[httpx.Response],
        tasks: Answer,
        *,
        old: bool = False,
        refusing: bool = False,
        busy_s: int = 0,
    ) -> None:
        self.bundle, self.tasks = bundle, tasks
        self.old, self.refusing, self.busy_s = old, refusing, busy_s
        self.asked: list[httpx.Request] = []
        self.files: set[str] = set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        path = request.url.path
        if path.startswith("/v1/tasks/"):
            return self.tasks(request)
        if path.startswith("/v1/bundles/"):
            return next(self.bundle)
        if path == "/v1/files":
            return self._together(json.loads(request.read())["files"])
        if path.startswith("/v1/files/"):
            self.files.add(path)
            task = path.rpartition("/")[2]
            return httpx.Response(202, json={"version": "v", "task_id": task})
        if path.endswith("/files"):
            return self._staged_together(request)
        if "/files/" in path:
            return httpx.Response(201, json=staged(str(request.url), request.read()))
        return httpx.Response(200, json={"uri": "here"})

    def _staged_together(self, request: httpx.Request) -> httpx.Response:
        if self.old:
            return httpx.Response(404, json={"title": "none", "code": "not_found"})
        parts = form_files(request)
        return httpx.Response(
            201, json={"files": [staged(f"{request.url}/{name}", parts[name]) for name in parts]}
        )

    def _together(self, files: list[dict[str, object]]) -> httpx.Response:
        if self.old:
            return httpx.Response(404, json={"title": "none", "code": "not_found"})
        refused = files[:1] if self.refusing else []
        said: dict[str, object] = {"status": 422, "code": "missing_checksum", "detail": "no"}
        if self.busy_s:
            said = {"status": 503, "code": "service_unavailable", "retry_after_s": self.busy_s}
        self.files.update(f"/v1/files/{one['uuid']}" for one in files if one not in refused)
        became = [
            {**one, **(said if one in refused else {"task_id": one["uuid"]})} for one in files
        ]
        return httpx.Response(200, json={"files": became})

    def puts(self, path: str) -> list[httpx.Request]:
        """The requests that write there, or below."""
        return [one for one in self.asked if one.url.path.startswith(path) and one.method == "PUT"]

    def tried(self) -> int:
        return sum(one.url.path.startswith("/v1/bundles/") for one in self.asked)


def problem(status: int, code: str) -> httpx.Response:
    body = {"title": "No", "status": status, "code": code, "detail": "2 files are not here yet"}
    return httpx.Response(status, json=body)


def written(_: object = None) -> httpx.Response:
    return httpx.Response(201, json={"version": "v", "manifest": {"creator_uid": 0, "files": []}})


def status(word: str, **more: object) -> Answer:
    return lambda _: httpx.Response(200, json={"status": word, **more})


def run(played: Played, folder: Path, home: Path, *, timeout: float = 1200) -> UploadReport:
    clock = Clock()
    config = Configuration(home, home, "http://store.example")
    session = HttpSession(
        config.url, transport=httpx.MockTransport(played), sleep=lambda seconds: None
    )
    options = UploadOptions(folder, "aws", timeout_seconds=timeout, jobs=2)
    with Client(config=config, session=session) as client:
        return upload(client, options, clock=clock, sleep=clock.sleep)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path / "sample")


@pytest.mark.spec("UPL-19")
def test_a_bundle_is_put_until_its_files_are_verified(folder: Path, tmp_path: Path) -> None:
    answers = [problem(409, "file_pending")] * 5 + [written()]
    played = Played(iter(answers), status("RUNNING"))
    assert run(played, folder, tmp_path / "home").state == "uploaded"
    assert played.tried() == 6
    asks = [one for one in played.asked if one.url.path.startswith("/v1/bundles/")]
    assert {one.headers["Prefer"] for one in asks} == {"wait=15"}
    told = [one for put in played.puts("/v1/files") for one in json.loads(put.content)["files"]]
    assert len({one["source_url"] for one in told}) == 4


@pytest.mark.spec("UPL-63")
def test_registers_files_one_by_one_at_older_store(folder: Path, tmp_path: Path) -> None:
    played = Played(iter([written()]), status("RUNNING"), old=True)
    assert run(played, folder, tmp_path / "home").state == "uploaded"
    files = played.puts("/v1/files/")
    assert {one.headers["Prefer"] for one in files} == {"respond-async"}
    assert len({json.loads(one.content)["source_url"] for one in files}) == 4


@pytest.mark.spec("UPL-63")
def test_registers_refused_file_alone_again(tmp_path: Path) -> None:
    played = Played(iter([written()]), status("RUNNING"), refusing=True)
    assert run(played, many(tmp_path / "few", 4), tmp_path / "home").state == "uploaded"
    assert len(played.puts("/v1/files/")) == 1
    assert len(played.files) == 4


@pytest.mark.spec("UPL-63")
@pytest.mark.parametrize(("busy_s", "waited"), [(7, [7]), (1000, [])])
def test_waits_as_busy_store_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy_s: int, waited: list[float]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(StopSignal, "pause", lambda _, seconds: pauses.append(seconds))
    played = Played(iter([written()]), status("RUNNING"), refusing=True, busy_s=busy_s)
    assert run(played, many(tmp_path / "few", 4), tmp_path / "home").state == "uploaded"
    assert (pauses, len(played.puts("/v1/files/"))) == (waited, 1)


@pytest.mark.spec("UPL-63")
def test_many_files_take_few_requests(tmp_path: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(130):
        (source / f"{number}.txt").write_text(str(number))
    played = Played(iter([written()]), status("RUNNING"))
    assert run(played, source, tmp_path / "home").state == "uploaded"
    assert len(played.files) == 130
    assert 3 <= len(played.puts("/v1/files")) <= 4


def many(folder: Path, count: int, size: int = 100) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:03}.txt").write_bytes(b"%03d" % number + bytes(size - 3))
    return aged(folder)


def groups(played: Played) -> list[int]:
    """How many files came together, by request."""
    areas = [one for one in played.puts("/v1/area/") if one.url.path.endswith("/files")]
    return sorted(len(form_files(one)) for one in areas)


@pytest.mark.spec("UPL-65")
def test_small_files_are_sent_together(tmp_path: Path) -> None:
    played = Played(iter([written()]), status("RUNNING"))
    source = many(tmp_path / "many", 130)
    (source / "large.bin").write_bytes(bytes(64 * 1024 + 1))
    (source / "just.bin").write_bytes(bytes(64 * 1024))
    assert run(played, source, tmp_path / "home").state == "uploaded"
    assert groups(played) == [3, 64, 64]
    (alone,) = [one for one in played.puts("/v1/area/") if "large.bin" in one.url.path]
    assert len(alone.content) == 64 * 1024 + 1


@pytest.mark.spec("UPL-65")
def test_groups_of_small_files_have_at_most_one_mib(tmp_path: Path) -> None:
    played = Played(iter([written()]), status("RUNNING"))
    source = many(tmp_path / "many", 40, size=50_000)
    assert run(played, source, tmp_path / "home").state == "uploaded"
    assert groups(played) == [20, 20]


@pytest.mark.spec("UPL-65")
def test_file_that_changes_within_a_group_is_named(tmp_path: Path) -> None:
    source = many(tmp_path / "many", 10)

    class Changing(Played):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                (source / "007.txt").write_text("changed")
            return super().__call__(request)

    played = Changing(iter([written()]), status("RUNNING"))
    with pytest.raises(Damaged, match="007"):
        run(played, source, tmp_path / "home")
    assert groups(played) == []


@pytest.mark.spec("UPL-65")
def test_group_that_arrives_damaged_is_sent_file_by_file(tmp_path: Path) -> None:
    class Damaging(Played):
        def _staged_together(self, request: httpx.Request) -> httpx.Response:
            answer = super()._staged_together(request).json()
            answer["files"][3]["checksums"]["sha256"] = "0" * 64
            return httpx.Response(201, json=answer)

    played = Damaging(iter([written()]), status("RUNNING"))
    assert run(played, many(tmp_path / "many", 10), tmp_path / "home").state == "uploaded"
    assert len([one for one in played.puts("/v1/area/") if ".txt" in one.url.path]) == 10
    assert len(played.files) == 10


@pytest.mark.spec("UPL-65")
@pytest.mark.parametrize("answer", [{}, {"files": None}, {"files": [{}]}, []])
def test_answer_about_a_group_that_is_none_is_an_error(tmp_path: Path, answer: object) -> None:
    class Odd(Played):
        def _staged_together(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(201, json=answer)

    played = Odd(iter([written()]), status("RUNNING"))
    assert run(played, many(tmp_path / "many", 10), tmp_path / "home").state == "uploaded"
    assert len([one for one in played.puts("/v1/area/") if ".txt" in one.url.path]) == 10


@pytest.mark.spec("UPL-63")
@pytest.mark.parametrize("answer", [{}, {"filez": []}, {"files": [{}]}, [], {"files": []}])
def test_answer_about_several_files_that_is_none_makes_them_come_alone(
    tmp_path: Path, answer: object
) -> None:
    class Odd(Played):
        def _together(self, files: list[dict[str, object]]) -> httpx.Response:
            return httpx.Response(200, json=answer)

    played = Odd(iter([written()]), status("RUNNING"))
    assert run(played, many(tmp_path / "few", 4), tmp_path / "home").state == "uploaded"
    assert len(played.puts("/v1/files/")) == 4


@pytest.mark.spec("UPL-19")
def test_answer_about_a_bundle_that_is_none_is_named(tmp_path: Path) -> None:
    played = Played(iter([httpx.Response(201, json={"version": "v"})]), status("RUNNING"))
    with pytest.raises(Damaged, match=r"the answer to PUT /v1/bundles/.* cannot be understood"):
        run(played, many(tmp_path / "few", 4), tmp_path / "home")


@pytest.mark.spec("UPL-19")
def test_same_command_continues_after_time_out(folder: Path, tmp_path: Path) -> None:
    played = Played(iter(lambda: problem(409, "file_pending"), None), status("RUNNING"))
    with pytest.raises(TimedOut) as told:
        run(played, folder, tmp_path / "home", timeout=30)
    assert "run the same command again" in told.value.hint
    assert 3 < played.tried() < 30
    # What the run that follows asks first is whether the bundle is there.
    answers = iter([httpx.Response(404, json={"title": "none", "code": "not_found"}), written()])
    later = Played(answers, status("SUCCEEDED"))
    assert run(later, folder, tmp_path / "home").state == "uploaded"
    assert not later.files


@pytest.mark.spec("UPL-19")
def test_zero_timeout_asks_once(folder: Path, tmp_path: Path) -> None:
    played = Played(iter([problem(409, "file_pending")]), status("RUNNING"))
    with pytest.raises(TimedOut):
        run(played, folder, tmp_path / "home", timeout=0)


@pytest.mark.spec("UPL-20")
def test_a_file_that_the_store_refused_is_named(folder: Path, tmp_path: Path) -> None:
    cause = {"code": "checksum_mismatch", "detail": "sha256 was declared as a but is b."}
    bad: list[str] = []

    def tasks(request: httpx.Request) -> httpx.Response:
        bad[:] = bad or [request.url.path]
        failed = request.url.path == bad[0]
        return status("FAILED", cause=cause)(request) if failed else status("RUNNING")(request)

    played = Played(iter(lambda: problem(409, "file_pending"), None), tasks)
    with pytest.raises(Damaged, match="sha256 was declared") as told:
        run(played, folder, tmp_path / "home")
    assert any(name in str(told.value) for name in ("sample.json", "empty.txt", "reads/lane 1/R"))
    answers = iter([problem(404, "not_found"), written()])
    again = Played(answers, status("SUCCEEDED"))
    run(again, folder, tmp_path / "home")
    assert len(again.files) == 1


@pytest.mark.spec("UPL-20")
def test_registers_files_again_after_failed_run(folder: Path, tmp_path: Path) -> None:
    """Their verification failed, or they were purged, when nobody was looking."""
    first = Played(iter([problem(409, "file_pending")]), status("RUNNING"))
    with pytest.raises(TimedOut):
        run(first, folder, tmp_path / "home", timeout=0)
    answers = [problem(404, "not_found"), problem(400, "file_missing"), written()]
    second = Played(iter(answers), status("SUCCEEDED"))
    assert run(second, folder, tmp_path / "home").state == "uploaded"
    assert second.files == first.files


@pytest.mark.spec("UPL-20")
def test_missing_files_are_an_error(folder: Path, tmp_path: Path) -> None:
    played = Played(iter(lambda: problem(400, "file_missing"), None), status("SUCCEEDED"))
    with pytest.raises(Damaged):
        run(played, folder, tmp_path / "home")


@pytest.mark.spec("UPL-20")
def test_tombstone_ends_wait(folder: Path, tmp_path: Path) -> None:
    played = Played(iter([problem(409, "bundle_tombstone_already_exists")]), status("RUNNING"))
    with pytest.raises(Conflict):
        run(played, folder, tmp_path / "home")
