"""Handlers as plain functions: which events are news, and to whom; and what kopf is asked to do."""

from collections.abc import Mapping
from typing import Any

import pytest
from freshgate_written import policy, source, workspace
from kubernetes.aio.client import Configuration

from freshgate_operator.queue import Key
from freshgate_operator.watching import Handlers, kopf_settings, login, registry


class Heard:
    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.beats: list[Mapping[str, Any]] = []
        self.handlers = Handlers(self.keys.append, self.beats.append)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def event(body: dict[str, Any], kind: str | None = "MODIFIED", **metadata: Any) -> dict[str, Any]:
    given = {"uid": body["metadata"]["name"], "generation": 1, "resourceVersion": "1", **metadata}
    return {"type": kind, "object": {**body, "metadata": {**body["metadata"], **given}}}


async def test_a_workspace_is_marked_by_its_name_and_what_it_lives_on_by_its_namespace(heard: Heard):
    for body in (workspace(), source(), policy()):
        await heard.handlers.resource(event=event(body, None))
    assert heard.keys == [Key("acme", "support"), Key("acme"), Key("acme")]


async def test_a_change_of_a_status_is_no_news(heard: Heard):
    for version in ("1", "2", "3"):
        await heard.handlers.resource(event=event(source(), resourceVersion=version))
    assert len(heard.keys) == 1


async def test_a_spec_that_changed_a_deletion_and_a_new_beginning_are_news(heard: Heard):
    await heard.handlers.resource(event=event(source()))
    await heard.handlers.resource(event=event(source(), generation=2))
    await heard.handlers.resource(event=event(source(), generation=2, deletionTimestamp="now"))
    await heard.handlers.resource(event=event(source(), "DELETED", generation=2))
    await heard.handlers.resource(event=event(source(), "ADDED"))
    assert len(heard.keys) == 5


async def test_a_relisting_is_news_since_nobody_tells_what_was_deleted_before_it(heard: Heard):
    await heard.handlers.resource(event=event(source()))
    await heard.handlers.resource(event=event(source(), None))
    assert len(heard.keys) == 2


async def test_a_credential_that_changed_is_news_to_its_namespace(heard: Heard):
    body = {"metadata": {"name": "support-db", "namespace": "acme"}}
    for version in ("1", "1", "2"):
        await heard.handlers.secret(event=event(body, resourceVersion=version))
    assert heard.keys == [Key("acme"), Key("acme")]


async def test_a_heartbeat_counts_where_a_watch_brought_it_and_not_a_listing(heard: Heard):
    body = {"metadata": {"name": "freshgate-operator", "namespace": "freshgate-system"}}
    await heard.handlers.lease(event=event(body, None))
    assert heard.beats == []
    await heard.handlers.lease(event=event(body))
    assert len(heard.beats) == 1


def test_kopf_only_watches(heard: Heard):
    made = registry(heard.handlers, Configuration())
    assert len(made._watching.get_all_handlers()) == 5
    for other in (made._changing, made._spawning, made._indexing, made._webhooks):
        assert list(other.get_all_handlers()) == []


def test_only_labelled_secrets_and_the_own_lease_are_watched_and_no_stream_lives_on_in_silence():
    made = kopf_settings()
    assert list(made.watching.label_selectors.values()) == ["freshgate.dev/credential=true"]
    assert list(made.watching.field_selectors.values()) == ["metadata.name=freshgate-operator"]
    assert made.watching.server_timeout < made.watching.inactivity_timeout <= 60
    assert made.watching.client_timeout <= 60
    assert made.watching.connect_timeout <= 10
    assert (made.peering.standalone, made.posting.enabled, made.scanning.disabled) == (True, False, True)
    assert made.queueing.worker_limit is None


async def test_each_login_reads_the_token_anew():
    configured = Configuration(host="https://cluster.example", api_key={"BearerToken": "bearer first"})
    configured.refresh_api_key_hook = lambda found: found.api_key.update(BearerToken=f"bearer {next(tokens)}")
    tokens = iter(("second", "third"))
    assert [(await login(configured)).token for _ in range(2)] == ["second", "third"]
