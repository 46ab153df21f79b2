"""The rules are right by promtool: they can be loaded, and each alert fires, is silent, and knows absence."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from freshgate_monitoring import CASES, RULES


def test_the_rules_can_be_loaded(program: Callable[[str], str]) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "rules", RULES], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("cases", CASES, ids=lambda path: path.stem)
def test_replay_37_alerts_fire_and_are_silent_as_the_cases_say(cases: Path, program: Callable[[str], str]) -> None:
    done = subprocess.run(
        [program("promtool"), "test", "rules", cases], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
