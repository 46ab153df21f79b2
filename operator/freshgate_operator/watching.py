"""Watches, by kopf: the only module that knows it, and all that is asked of it.

kopf delivers events and does nothing else here. There are no finalizers, no annotations, no progress to store and no
peering, so that a resource can be deleted while the operator is away, and nothing is ever written because of a watch. A
handler tells what changed and returns. kopf has a thread and an event loop of its own, since it cancels whatever else
runs in its loop when it stops.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import kopf
from kubernetes.aio.client import Configuration

from freshgate_operator.errors import OperatorError
from freshgate_operator.kinds import LEASE, SECRET, WRITTEN, Kind
from freshgate_operator.logs import get_logger
from freshgate_operator.names import CREDENTIALS, LEASE_NAME
from freshgate_operator.queue import ANY, Key
from freshgate_operator.settings import Settings

STREAM_SECONDS = 50
"""How long one watch request lasts. The server ends it; a connection that died in silence is given up soon after."""
SILENT_SECONDS = 60
CONNECT_SECONDS = 5
CLOSE_SECONDS = 0.1
LOGIN_SECONDS = 300
"""A ServiceAccount's token is rotated in its file, and read anew at least so often."""

Event = Mapping[str, Any]

log = get_logger(__name__)


class Handlers:
    """Plain functions of an event, but for what they have seen before. They are called in kopf's thread."""

    def __init__(self, changed: Callable[[Key], None], beaten: Callable[[Mapping[str, Any]], None]) -> None:
        self._changed = changed
        self._beaten = beaten
        self._seen: dict[str, str] = {}

    async def resource(self, event: Event, **_: Any) -> None:
        """A MemorySource, an EntitlementPolicy or a Workspace. What changes in its status concerns nobody."""
        metadata = event["object"]["metadata"]
        if self._is_news(event, str(metadata["generation"])):
            is_workspace = event["object"]["kind"] == WRITTEN[-1].name
            self._changed(Key(metadata["namespace"], metadata["name"] if is_workspace else ANY))

    async def secret(self, event: Event, **_: Any) -> None:
        metadata = event["object"]["metadata"]
        if self._is_news(event, metadata["resourceVersion"]):
            self._changed(Key(metadata["namespace"]))

    async def lease(self, event: Event, **_: Any) -> None:
        if event["type"] is not None:  # a listing proves nothing about watches
            self._beaten(event["object"])

    def _is_news(self, event: Event, version: str) -> bool:
        """A listing always is: what was deleted before it began is told by nobody."""
        uid = event["object"]["metadata"]["uid"]
        if event["type"] == "DELETED":
            self._seen.pop(uid, None)
            return True
        leaving = event["object"]["metadata"].get("deletionTimestamp")
        known, self._seen[uid] = self._seen.get(uid), f"{version} {leaving}"
        return event["type"] is None or known != self._seen[uid]


def registry(handlers: Handlers, configured: Configuration) -> kopf.OperatorRegistry:
    made = kopf.OperatorRegistry()
    for kind in WRITTEN:
        _on_event(made, kind)(handlers.resource)
    _on_event(made, SECRET)(handlers.secret)
    _on_event(made, LEASE)(handlers.lease)
    kopf.on.login(registry=made, id="login")(partial(login, configured))
    return made


def _on_event(made: kopf.OperatorRegistry, kind: Kind) -> Callable[[Any], Any]:
    _, _, version = kind.api_version.rpartition("/")
    return kopf.on.event(kind.group, version, kind.plural, registry=made, id=kind.plural)


async def login(configured: Configuration, **_: Any) -> kopf.ConnectionInfo:
    """As the rest of the operator is logged in."""
    header = await configured.get_api_key_with_prefix("BearerToken", alias="authorization")
    return kopf.ConnectionInfo(
        server=configured.host,
        ca_path=configured.ssl_ca_cert,
        insecure=not configured.verify_ssl,
        token=header.partition(" ")[2] if header else None,
        certificate_path=configured.cert_file,
        private_key_path=configured.key_file,
        proxy_url=configured.proxy,
        expiration=datetime.now(UTC) + timedelta(seconds=LOGIN_SECONDS),
    )


def kopf_settings() -> kopf.OperatorSettings:
    made = kopf.OperatorSettings()
    made.peering.standalone = True
    made.posting.enabled = False
    # The kinds are there when this starts; should they go, the process ends and is started anew.
    made.scanning.disabled = True
    made.watching.server_timeout = STREAM_SECONDS
    made.watching.client_timeout = SILENT_SECONDS
    made.watching.inactivity_timeout = SILENT_SECONDS
    made.watching.connect_timeout = CONNECT_SECONDS
    made.watching.label_selectors["", "v1", SECRET.plural] = CREDENTIALS
    made.watching.field_selectors[LEASE.group, "v1", LEASE.plural] = f"metadata.name={LEASE_NAME}"
    made.networking.request_timeout = SILENT_SECONDS
    made.networking.error_backoffs = (1, 1, 2, 3, 5)
    # A worker lingers on its object; there is no limit to workers, since one would stall all others.
    made.queueing.idle_timeout = 1.0
    return made


async def watch(handlers: Handlers, configured: Configuration, settings: Settings) -> None:
    """Until cancelled. Raises OperatorError where kopf gave up."""
    # It would warn that signals are not for it here, which is meant.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    stop = threading.Event()
    watching = asyncio.create_task(asyncio.to_thread(_run, handlers, configured, settings, stop))
    try:
        await asyncio.shield(watching)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([watching])
        raise
    except Exception as error:
        log.error("watches_broke", exc_info=error)
    raise OperatorError("the watches ended")


def _run(handlers: Handlers, configured: Configuration, settings: Settings, stop: threading.Event) -> None:
    asyncio.run(_operate(handlers, configured, settings, stop))


async def _operate(handlers: Handlers, configured: Configuration, settings: Settings, stop: threading.Event) -> None:
    try:
        await kopf.operator(
            registry=registry(handlers, configured),
            settings=kopf_settings(),
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            standalone=True,
            stop_flag=stop,
        )
    finally:
        stop.set()  # a thread waits for it, and this loop for the thread
    # Encrypted connections take a moment to close.
    await asyncio.sleep(CLOSE_SECONDS)
