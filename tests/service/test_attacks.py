"""Attacks that once went through: each is the whole kind of something that was found by trying to break in."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import freshgate_world
import pytest
from freshgate_laptop import FRESHGATE, free_port
from freshgate_world import SOURCE, STORE, allow, configuration, entitlements, group, person, remembered
from freshgate_written import policy, resource, secret, source

from freshgate_crds.compiled import Config, Revision
from freshgate_service import memory as memories
from freshgate_service import runtime
from freshgate_service.domain import Access, Name, ObjectKey, Readers
from freshgate_service.errors import ConfigRefused, FreshgateError, StoreUnavailable
from freshgate_service.laptop import asking, postgres
from freshgate_service.laptop.files import DataInUse, in_use
from freshgate_service.laptop.issuers import Issuers, NoLocalIssuer
from freshgate_service.laptop.publisher import ManifestPublisher, Place
from freshgate_service.memory import Memory
from freshgate_service.metrics import Metrics
from freshgate_service.published import CONFIG_FILE, MountedSecret, Published
from freshgate_service.runtime import Options, Runtime

# --- edits of manifests that nobody heard of -------------------------------------------------------------------------


class Folder:
    """What somebody keeps on a laptop. JSON is YAML."""

    def __init__(self, root: Path) -> None:
        self.place = Place(root / "manifests", root / "secrets", root / "data")
        self.now = 0.0
        self.write(secret={"support-db": "postgresql://desk", "store": "postgresql://store"})
        self.write(workspace=self.workspace(), source=source(), policy=policy())

    def workspace(self, max_age: str = "24h") -> dict[str, Any]:
        oidc = [{"name": "corp", "issuer": "https://login.example", "audience": "freshgate", "claims": {"user": "sub"}}]
        spec = {
            "sources": ["tickets"],
            "authentication": {"oidc": oidc},
            "store": {"dsn": secret("store", "dsn")},
            "entitlements": {"maxAge": max_age},
        }
        return resource("Workspace", "support", spec)

    def write(self, **files: Any) -> None:
        for secret_name, value in files.pop("secret", {}).items():
            path = self.place.secrets / secret_name / "dsn" if self.place.secrets else Path()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value)
        self.place.manifests.mkdir(parents=True, exist_ok=True)
        for name, body in files.items():
            (self.place.manifests / f"{name}.yaml").write_text(json.dumps(body))

    def revoke(self) -> None:
        (self.place.manifests / "policy.yaml").unlink()

    def publisher(self) -> ManifestPublisher:
        return ManifestPublisher(self.place, "", now=lambda: self.now)


async def next_of(changes: AsyncIterator[Published | ConfigRefused]) -> Published | ConfigRefused:
    with mock.patch("freshgate_service.laptop.publisher.LOOK_SECONDS", 0.01):
        async with asyncio.timeout(10):
            return await anext(changes)


@pytest.mark.promise("CON-1")
@pytest.mark.parametrize("parent", [".hidden", "plain", "with a space", "ü"])
async def test_a_revocation_is_heard_of_wherever_the_manifests_are(tmp_path, parent):
    folder = Folder(tmp_path / parent)
    publisher = folder.publisher()
    assert publisher.current().config.entitlements.policies
    changes = publisher.changes()
    folder.revoke()
    told = await next_of(changes)
    assert isinstance(told, Published)
    assert told.config.entitlements.policies == ()
    await changes.aclose()


async def test_an_edit_between_the_first_reading_and_the_first_look_is_not_missed(tmp_path):
    folder = Folder(tmp_path)
    publisher = folder.publisher()
    publisher.current()
    folder.revoke()  # while the store is opened, say
    told = await next_of(publisher.changes())
    assert isinstance(told, Published)
    assert told.config.entitlements.policies == ()


async def test_a_folder_that_was_replaced_is_followed(tmp_path):
    folder = Folder(tmp_path)
    publisher = folder.publisher()
    publisher.current()
    changes = publisher.changes()
    for change in ("replaced", "replaced again"):
        folder.place.manifests.rename(tmp_path / change)
        folder.write(workspace=folder.workspace(), source=source(), policy=policy(change.replace(" ", "-")))
        told = await next_of(changes)
        assert isinstance(told, Published)
        assert [each.name for each in told.config.entitlements.policies] == [change.replace(" ", "-")]
    await changes.aclose()


@pytest.mark.promise("CON-2")
async def test_a_shorter_max_age_is_vouched_for_in_time(tmp_path):
    folder = Folder(tmp_path)
    publisher = folder.publisher()
    publisher.current()
    changes = publisher.changes()
    folder.write(workspace=folder.workspace(max_age="10m"))
    told = await next_of(changes)
    assert isinstance(told, Published)
    folder.now += timedelta(minutes=2.5).total_seconds()
    again = await next_of(changes)
    assert isinstance(again, Published)
    assert again.config.entitlements.stamp > told.config.entitlements.stamp
    await changes.aclose()


@pytest.mark.promise("CON-1")
async def test_a_secret_that_is_no_text_is_missed_by_whoever_names_it_and_holds_no_revocation_back(tmp_path):
    folder = Folder(tmp_path)
    publisher = folder.publisher()
    publisher.current()
    changes = publisher.changes()
    (folder.place.secrets / "support-db" / "keystore").write_bytes(b"\xff\xfe\x00")
    folder.revoke()
    told = await next_of(changes)
    assert isinstance(told, Published)
    assert told.config.entitlements.policies == ()
    (folder.place.secrets / "support-db" / "dsn").write_bytes(b"\xff\xfe\x00")
    assert "support-db" in str(await next_of(changes))
    await changes.aclose()


@pytest.mark.parametrize("left", ["", "{", '{"workspace_uid": 1}', "\x00"])
def test_a_counter_that_a_crash_left_broken_is_begun_anew(tmp_path, left):
    folder = Folder(tmp_path)
    first = folder.publisher().current().config.revision
    [kept] = (folder.place.data / "revisions").iterdir()
    kept.write_text(left)
    revision = folder.publisher().current().config.revision
    assert (revision.workspace_uid == first.workspace_uid, revision.counter) == (False, 1)


# --- configurations that were missed, or came too late ---------------------------------------------------------------


async def test_what_was_swapped_in_before_anybody_followed_is_told(tmp_path):
    mounted = MountedSecret(tmp_path)
    (tmp_path / CONFIG_FILE).write_bytes(b"one")
    with pytest.raises(ConfigRefused):
        mounted.current()
    (tmp_path / CONFIG_FILE).write_bytes(b"two")
    os.utime(tmp_path / CONFIG_FILE, (1, 1))
    with mock.patch("freshgate_service.published.POLL_SECONDS", 0.01):
        async with asyncio.timeout(5):
            assert isinstance(await anext(mounted.changes()), ConfigRefused)


class Scripted:
    """A publisher whose news a test sends. An exception among them is raised, as a fault in it would be."""

    def __init__(self, first: Published) -> None:
        self.first = first
        self.news: asyncio.Queue[Published | ConfigRefused | RuntimeError] = asyncio.Queue()

    def current(self) -> Published:
        return self.first

    async def changes(self) -> AsyncIterator[Published | ConfigRefused]:
        while True:
            news = await self.news.get()
            if isinstance(news, RuntimeError):
                raise news
            yield news


def published(counter: int, dsn: str, **changes: object) -> Published:
    revision = Revision(workspace_uid="uid", counter=counter)
    config = configuration().model_copy(update={"revision": revision, **changes})
    return Published(config, {STORE.file_name: dsn, SOURCE.file_name: "postgresql://127.0.0.1:1/desk"})


def made(first: Published) -> tuple[Runtime, Scripted, list[int]]:
    publisher, heard = Scripted(first), []

    def hear(config: Config) -> None:
        heard.append(config.revision.counter)

    options = Options(holder="test", runs_loop=False, allow_loopback=True)
    return Runtime(first, publisher, options, Metrics("support"), in_force=hear), publisher, heard


def counted(served_now: Runtime, name: str) -> float:
    lines = served_now._metrics.render().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.promise("CON-3")
async def test_replay_46_of_an_older_configuration_not_even_the_issuers_come_into_force(database):
    served_now, publisher, heard = made(published(5, database))
    async with served_now:
        await asyncio.wait_for(served_now.loaded.wait(), 10)
        for news in (published(4, database), published(3, f"{database}?application_name=other")):
            publisher.news.put_nowait(news)
        publisher.news.put_nowait(published(6, database))
        await until(lambda: served_now.revision.counter == 6)
    assert heard == [6]


@pytest.mark.promise("CON-1")
async def test_a_fault_that_nobody_foresaw_does_not_end_the_following(database):
    served_now, publisher, _ = made(published(1, database))
    with mock.patch.object(runtime, "RETRY_SECONDS", 0.01):
        async with served_now:
            await asyncio.wait_for(served_now.loaded.wait(), 10)
            publisher.news.put_nowait(RuntimeError("nobody foresaw it"))
            publisher.news.put_nowait(published(2, database))
            await until(lambda: served_now.revision.counter == 2)


@pytest.mark.promise("CON-1")
async def test_a_store_that_is_not_there_yet_holds_no_revocation_back(database):
    served_now, publisher, _ = made(published(1, database, entitlements=entitlements(allow("all", group("emea")))))
    async with served_now:
        await asyncio.wait_for(served_now.loaded.wait(), 10)
        nobody = entitlements(allow("emea", group("nobody")))
        elsewhere = published(2, "postgresql://127.0.0.1:1/store", entitlements=nobody)
        with mock.patch.object(runtime, "store_of", side_effect=StoreUnavailable("away")):
            publisher.news.put_nowait(elsewhere)
            await until(lambda: counted(served_now, "freshgate_config_rejected_total") == 1)
        assert served_now.engine.memory.config.entitlements == nobody


# --- a data directory, twice or broken -------------------------------------------------------------------------------


def test_a_second_service_on_one_data_directory_is_refused_and_the_first_goes_on(tmp_path):
    with in_use(tmp_path), pytest.raises(DataInUse, match="--data"), in_use(tmp_path):
        pass
    with in_use(tmp_path):
        pass


@pytest.mark.parametrize("path", ["a b", "a;b", "a$b", "a'b", "ü", "a?b", "a&b"])
def test_a_path_that_postgres_cannot_take_is_told_in_a_sentence(tmp_path, path):
    with pytest.raises(FreshgateError, match="--data"), postgres.running(tmp_path / path):
        pass


@pytest.mark.parametrize("broken", ["", "{", "[1]", "\x00"])
def test_a_broken_index_or_key_of_local_issuers_is_told_in_a_sentence(tmp_path, broken):
    issuers = Issuers(tmp_path)
    issuers.jwks("corp")
    for file in ("index.json", "corp.pem"):
        (tmp_path / "issuers" / file).write_text(broken)
    with pytest.raises(NoLocalIssuer):
        issuers.only()
    with pytest.raises(NoLocalIssuer):
        issuers.jwks("corp")


def test_a_private_key_is_never_readable_by_others_and_never_half_written(tmp_path):
    Issuers(tmp_path).jwks("corp")
    [key] = (tmp_path / "issuers").iterdir()
    assert key.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("account", ["helper", "bots/", "/helper", "bots/a/b"])
def test_no_token_is_made_for_what_is_no_service_account(tmp_path, account):
    with pytest.raises(NoLocalIssuer, match="namespace/name"):
        Issuers(tmp_path).service_account_token(account, {}, 60.0)


HOSTILE = "\x1b]0;title\x07\x1b[2J\u202e\r\x9b31m"


def test_what_others_wrote_is_text_on_a_terminal(capsys):
    match = {"term": HOSTILE, "field": HOSTILE, "score": 1.0}
    result = {"id": f"tickets/{HOSTILE}", "title": HOSTILE, "freshness": {"state": HOSTILE, "score": 1.0}}
    asking.table({"results": [{**result, "score": 1.0, "matched": [match]}]})
    said = capsys.readouterr().out
    assert [each for each in said if not each.isprintable() and each != "\n"] == []


# --- misuse at a terminal --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "status", "told"),
    [
        (["--port", "99999"], 2, "99999"),
        (["--ops-port", "-1"], 2, "-1"),
        (["--data", "{file}/data"], 1, "Not a directory"),
        (["--data", "/proc/nowhere"], 1, "/proc/nowhere"),
    ],
)
async def test_misuse_of_serve_is_one_sentence(tmp_path, given, status, told):
    folder = Folder(tmp_path)
    (tmp_path / "file").touch()
    given = [each.format(file=tmp_path / "file") for each in given]
    ended = await serve(folder, *given)
    assert (ended[0], told in ended[1], "Traceback" in ended[1]) == (status, True, False), ended[1]


async def test_a_port_in_use_is_told_in_a_sentence(tmp_path):
    folder, port = Folder(tmp_path), free_port()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    async with server:
        status, told = await serve(folder, "--port", str(port), "--ops-port", "0")
    assert (status, "in use" in told, "Traceback" in told) == (1, True, False), told


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_demo_that_is_stopped_leaves_no_server_running(tmp_path, name):
    data, ports = tmp_path / "demo", ("--port", str(free_port()), "--ops-port", str(free_port()))
    process = await asyncio.create_subprocess_exec(
        FRESHGATE,
        *("demo", "--data", str(data), *ports),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    async with asyncio.timeout(40):
        while not (data / "desk" / "postmaster.pid").exists():
            await asyncio.sleep(0.02)
        process.send_signal(name)
        said, _ = await process.communicate()
    assert (process.returncode, b"Traceback" in said) == (130, False), said
    assert [*data.glob("*/postmaster.pid")] == []


async def serve(folder: Folder, *given: str) -> tuple[int | None, str]:
    """Exit status, and all that was said."""
    place = folder.place
    where = ["-f", str(place.manifests), "--secrets", str(place.secrets), "--data", str(place.data)]
    process = await asyncio.create_subprocess_exec(
        FRESHGATE,
        *("serve", *where, *given),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        stdin=asyncio.subprocess.DEVNULL,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, said.decode()


# --- what grows with those who ask -----------------------------------------------------------------------------------


def test_an_askers_first_query_costs_the_same_however_many_have_asked_before(monkeypatch):
    monkeypatch.setattr(memories, "SLICES", 16)
    own = entitlements(allow("own", group("all"), asker_must_be_reader=True))
    memory = Memory(configuration(entitlements=own))
    for place in range(64):
        access = Access("tickets", {"region": "emea"}, Readers(frozenset({Name("corp", f"reader {place}")})))
        memory.apply(remembered(str(place), "refund", "text", access, place + 1))
    counted = []
    monkeypatch.setattr(memories.View, "nbytes", property(lambda _: counted.append(1) or 100))
    for place in range(64):
        mine = memory.slice(person(f"reader {place}", "all"), None)
        assert [one.key.record_id for one in memory.top(mine, "refund", 10)] == [str(place)]
    assert len(counted) == 64  # one view a query, its own
    assert len(memory._slices) == 16
    assert memory._held == 16 * (memories.VIEW_OVERHEAD + 100)
    del mine
    assert len(memory._last) == 16


def test_a_slice_that_is_not_kept_any_more_is_no_ground_to_build_on(monkeypatch):
    monkeypatch.setattr(memories, "SLICES", 1)
    memory = Memory(configuration(entitlements=entitlements(allow("emea", group("emea")), allow("all", group("all")))))
    access = Access("tickets", {"region": "emea"})
    memory.apply(remembered("0", "another", "of its class", access, 1))
    memory.apply(remembered("1", "refund", "text", access, 1))
    ana, bob = person("ana", "emea"), person("bob", "all")
    held = memory.slice(ana, None)  # kept alive, as a traceback would
    memory.apply(remembered("2", "other", "text", Access("tickets", {"region": "amer"}), 2))
    memory.slice(bob, frozenset({"tickets"}))
    memory.slice(bob, frozenset({"nowhere"}))
    memory.apply(remembered("1", "changed", "text", access, 3))
    again = memory.slice(ana, None)
    assert again is not held
    assert [one.key.record_id for one in memory.top(again, "changed", 10)] == ["1"]
    assert memory.top(again, "refund", 10) == []


def test_an_edited_ttl_passes_over_no_object(monkeypatch):
    memory = Memory(configuration())
    memory.apply(remembered("1", "refund", "text", Access("tickets", {"region": "emea"}), 1))
    admitted: list[object] = []
    monkeypatch.setattr(Memory, "_admit", lambda _, key, remembered: admitted.append(key))
    memory.replace_config(configuration(freshgate_world.source(ttl_seconds=7.0)))
    assert (admitted, memory.specs["tickets"].ttl_seconds) == ([], 7.0)
    memory.replace_config(configuration(freshgate_world.source(spec_hash="two")))
    assert admitted == [ObjectKey("tickets", "1")]
