"""No story is told without a cluster, not even one that only renders the chart: helm comes with it."""

import pytest
from freshgate_clusters import Images


@pytest.fixture(scope="session", autouse=True)
def _cluster(images: Images) -> None: ...
