"""Rules and dashboard against the real programs: promtool, and a Prometheus that scrapes a real service."""

import shutil
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def images() -> None:
    """No cluster is needed here, as it is by the stories."""


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """The path of `promtool` or `prometheus`."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.fail(f"{name} is not installed; it comes with Debian's package prometheus")
        return path

    return find
