"""Documentation says what the code says, and what it shows works."""

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from freshgate_crds.compile import IssuerKeys, compile_workspace
from freshgate_crds.compiled import Revision
from freshgate_crds.manifests import load_directory

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(?P<language>\w+)(?P<tour> tour)?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#]+)")
README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def tour(tmp_path_factory) -> Iterator[Path]:
    """A folder in which `freshgate demo --stay` runs, as the README has it; its ports are the README's."""
    for port in (8080, 9090):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.fail(f"port {port}, which the README's tour uses, is taken on this machine")
    folder = tmp_path_factory.mktemp("tour")
    (folder / ".venv").symlink_to(Path(sys.prefix))
    log = folder / "demo.log"
    with log.open("wb") as out:
        demo = subprocess.Popen([".venv/bin/freshgate", "demo", "--stay"], cwd=folder, stdout=out, stderr=out)
    try:
        until = time.monotonic() + 120
        while b"runs on" not in log.read_bytes():
            assert demo.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        assert "9 of 9 as promised" in log.read_text()
        yield folder
    finally:
        demo.terminate()
        demo.wait(30)


def test_the_readmes_tour_works_as_it_is_written(tour):
    script = ["set -euo pipefail"]
    for place, block in enumerate(each for each in BLOCK.finditer(README) if each["tour"]):
        if block["language"] == "python":
            (tour / f"{place}.py").write_text(block["text"])
            script.append(f"python {place}.py")
        else:
            script.append(block["text"])
        script.append("echo; echo =====")
    done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=tour, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    table, rest, mcp, nobody, explained = done.stdout.split("=====")[:5]
    assert "tickets/101" in table
    assert '"matched"' in rest
    assert "tickets/101" in rest
    assert re.search(r"tickets/101 .* (fresh|refreshed)", mcp)
    assert "nothing that this asker may see matches" in nobody
    assert "allowed by regional-support" in explained
    assert "no policy allows it" in explained


@pytest.mark.parametrize("page", ["rest.md", "mcp.md"])
def test_the_examples_of_the_pages_on_rest_and_mcp_work(tour, page):
    blocks = list(BLOCK.finditer((ROOT / "docs" / page).read_text("utf-8")))
    token = subprocess.run(
        [
            ".venv/bin/freshgate",
            "token",
            "--data",
            ".freshgate/demo",
            "--user",
            "ana@desk.example",
            "--group",
            "emea-support",
        ],
        cwd=tour,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for block in blocks:
        runner = [sys.executable, "-c"] if block["language"] == "python" else ["bash", "-ec"]
        done = subprocess.run(
            [*runner, block["text"]],
            env={"FRESHGATE_TOKEN": token, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "tickets/101" in done.stdout


def test_the_readmes_manifests_compile(tmp_path):
    for place, block in enumerate(each for each in BLOCK.finditer(README) if each["language"] == "yaml"):
        assert yaml.safe_load(block["text"])["apiVersion"] == "freshgate.dev/v1alpha1"
        (tmp_path / f"{place}.yaml").write_text(block["text"])
    compilation = compile_workspace(
        load_directory(tmp_path),
        "support",
        "acme",
        cluster_uid="",
        revision=Revision(workspace_uid="", counter=1),
        stamp=datetime.now(UTC),
        issuer_keys={"kubernetes": IssuerKeys("", "{}")},
    )
    assert compilation.refusals == ()
    assert compilation.config is not None


def test_the_two_commands_of_the_readme_are_targets():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(f"\n{target}:" in makefile for target in ("demo", "test"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = [page.parent / found["target"] for found in LINK.finditer(page.read_text("utf-8"))]
    assert [str(target) for target in targets if not target.exists()] == []


def test_what_is_made_from_code_is_up_to_date(tmp_path):
    made = ["manifests.md", "metrics.md", "config.md", "openapi.json", "security-model.md"]
    copy = tmp_path / "copy"
    for folder in ("docs", "crds", "operator", "service"):
        shutil.copytree(ROOT / folder, copy / folder)
    shutil.copy(ROOT / "README.md", copy / "README.md")
    subprocess.run([sys.executable, "docs/generate.py"], cwd=copy, check=True, capture_output=True)
    stale = [name for name in made if (copy / "docs" / name).read_bytes() != (ROOT / "docs" / name).read_bytes()]
    assert stale == [], "run `make generate`"
