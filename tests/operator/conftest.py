"""A support desk in a cluster in memory, and an operator that has not looked at it yet."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from freshgate_kubernetes import FakeCluster, Office, Time, put_all, secret
from freshgate_written import NAMESPACE as ACME
from freshgate_written import desk, policy

from freshgate_operator import logs
from freshgate_operator.kinds import NAMESPACE, SECRET
from freshgate_operator.metrics import Metrics

DSN = "postgresql://reader:hunter2@db.example:5433/desk"


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """As the process has them; afterwards as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure()
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def cluster(time: Time) -> FakeCluster:
    made = FakeCluster(Metrics(), lambda: time.wall)
    made.put(NAMESPACE, {"metadata": {"name": ACME, "uid": "acme-uid"}})
    made.put(SECRET, secret("support-db", dsn=DSN))
    made.put(SECRET, secret("store", dsn="postgresql://store:hunter3@store.example/freshgate"))
    put_all(made, [*desk(), policy()])
    made.calls.clear()
    return made


@pytest.fixture
def office(cluster: FakeCluster, time: Time) -> Office:
    return Office(cluster, time)
