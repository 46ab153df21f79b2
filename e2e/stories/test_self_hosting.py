"""docs/self-hosting.md, from an empty cluster to a first answer: run as it is written."""

import json
import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from freshgate_clusters import ROOT, Images
from freshgate_kubectl import kubectl

PAGE = ROOT / "docs" / "self-hosting.md"
STEPS = re.compile(r"^```sh e2e\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECONDS = 300


@pytest.fixture
def _acme() -> Iterator[None]:
    yield
    kubectl("delete", "namespace", "acme", "--ignore-not-found", "--wait=false")


@pytest.mark.usefixtures("_acme")
def test_the_page_leads_to_an_answer_with_the_one_ticket_that_the_asker_may_see(images: Images) -> None:
    steps = STEPS.findall(PAGE.read_text("utf-8"))
    assert len(steps) == 4
    script = "set -euo pipefail\ntrap 'kill $(jobs -p)' EXIT\n" + "\n".join(steps)
    environment = {
        **os.environ,
        "OPERATOR": images.operator,
        "SERVICE": images.service,
        "POSTGRES": images.postgres,
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert [result["id"] for result in answer["results"]] == ["tickets/1"]
    assert answer["results"][0]["title"] == "Refund for a duplicate invoice"
