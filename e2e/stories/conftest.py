"""No story is told without a cluster, not even one that only renders the chart: helm comes with it.

Where one fails, it shows what the cluster looked like then, for afterwards there is none.
"""

from collections.abc import Generator
from itertools import count

import pytest
from freshgate_clusters import SYSTEM, Images
from freshgate_kubectl import Refused, kubectl

EVIDENCE = (
    ("pods", ("get", "pods", "--all-namespaces", "--output=wide")),
    ("workspaces", ("get", "workspaces,memorysources,entitlementpolicies", "--all-namespaces")),
    ("operator", ("logs", "deployment/freshgate-operator", f"--namespace={SYSTEM}", "--tail=50")),
    ("services", ("logs", "--selector=freshgate.dev/serves", "--namespace=northwind", "--tail=50", "--prefix")),
    ("events", ("get", "events", "--namespace=northwind", "--sort-by=.metadata.creationTimestamp")),
)


SHOWN = 3
"""How often: where the cluster itself is broken, all stories fail."""

_shown = count()


@pytest.fixture(scope="session", autouse=True)
def _cluster(images: Images) -> None: ...


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and next(_shown) < SHOWN:
        report.sections += [(name, _said(*words)) for name, words in EVIDENCE]
    return report


def _said(*words: str) -> str:
    try:
        return kubectl(*words)
    except (Refused, OSError) as error:
        return str(error)
