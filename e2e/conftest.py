"""A real cluster for the run, with the chart installed in it: it is started first and ended last, however the run ends.

Each step says so as it begins, since some take minutes.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

import freshgate_clusters as clusters
import freshgate_northwind_world as northwind
from freshgate_chart import install, values_of

Say = Callable[[str], None]


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Say:
    """Prints a line now, though output is captured: whoever waits is to know for what."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    began = time.monotonic()

    def say_it(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n[{time.monotonic() - began:6.1f}s] {text}", end=" ", flush=True)

    return say_it


@pytest.fixture(scope="session")
def images(say: Say) -> Iterator[clusters.Images]:
    """A cluster is up, for as long as this lives."""
    with clusters.cluster(say) as built:
        yield built


@pytest.fixture(scope="session")
def installed(images: clusters.Images, say: Say) -> str:
    """The release's namespace."""
    say("installing the chart")
    install(values_of(images))
    return clusters.SYSTEM


@pytest.fixture(scope="session")
def workspace(installed: str, images: clusters.Images, say: Say) -> str:
    """Ready, over Northwind. Whoever changes something puts it back."""
    say("starting Northwind's Postgres")
    northwind.settle(images)
    say("applying the three kinds of YAML")
    northwind.remember()
    say("the workspace is ready")
    return northwind.WORKSPACE


@pytest.fixture(scope="session")
def agents(workspace: str, images: clusters.Images) -> dict[str, northwind.Agent]:
    """By name. Policies let the first two in."""
    return {agent.name: agent for agent in northwind.hire(images, "german-desk", "head-office", "stranger")}
