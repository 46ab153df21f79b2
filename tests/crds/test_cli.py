"""The command line: what it teaches, what it refuses, and its exit status."""

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from freshgate_written import desk, policy, source, workspace

from freshgate_crds import cli

INSTALLED = Path(sys.executable).parent / "freshgate"
DONE, REFUSED, MISUSED = 0, 1, 2


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments], prog_name="freshgate")
    assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback"
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the desk, to which nothing is to be said."""
    write(tmp_path / "manifests", "desk", desk())
    write(tmp_path / "manifests", "policies", [policy()])
    return tmp_path / "manifests"


def write(folder: Path, name: str, resources: Sequence[Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(resources), encoding="utf-8")


# --- the group ---------------------------------------------------------------------------------------------------


def test_help_names_every_command_and_what_it_does():
    result = run("--help")
    assert result.exit_code == DONE
    for entry in entry_points(group=cli.GROUP):
        assert cli.SUMMARIES[entry.name]
        assert f"{entry.name} " in result.output
        assert cli.SUMMARIES[entry.name] in result.output


def test_help_says_what_to_do_first_and_what_the_exit_status_means():
    for line in ("freshgate demo", "freshgate validate -f manifests", "freshgate serve -f manifests", "Exit status"):
        assert line in run("--help").output


def test_help_comes_without_any_command_being_imported():
    probe = (
        "import sys; from click.testing import CliRunner; from freshgate_crds.cli import main;"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0;"
        "heavy = ('pydantic', 'yaml', 'jmespath', 'freshgate_service');"
        "print([name for name in sys.modules if name.split('.')[0] in heavy or name.endswith('.commands')])"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_version_is_that_of_the_package():
    assert run("--version").output == f"freshgate {version('freshgate')}\n"


@pytest.mark.parametrize(
    "arguments", [["serv"], ["validate"], ["validate", "-f", "not-there"], ["--colour"], ["compile"]]
)
def test_misuse_ends_with_2_and_says_how_to_get_help(arguments):
    result = run(*arguments)
    assert result.exit_code == MISUSED
    assert "--help" in result.output


def test_without_a_command_it_teaches():
    assert "freshgate demo" in run().output


def _brought_by(monkeypatch: pytest.MonkeyPatch, module: str, attribute: str = "command") -> None:
    entry = EntryPoint("serve", f"{module}:{attribute}", cli.GROUP)
    monkeypatch.setattr(cli, "_entries", lambda: (entry,))


@click.command()
def needs_a_package() -> None:
    __import__("asyncpg_not_here")


@pytest.mark.parametrize("when", ["loading", "running"])
def test_a_command_whose_extra_is_not_installed_says_how_to_install_it(when, monkeypatch):
    _brought_by(monkeypatch, "freshgate_service.commands")

    def load(entry: EntryPoint) -> click.Command:
        if when == "loading":
            __import__("asyncpg_not_here")
        return needs_a_package

    monkeypatch.setattr(EntryPoint, "load", load)
    result = run("serve")
    assert result.exit_code == REFUSED
    assert "`freshgate serve` needs asyncpg_not_here" in result.output
    assert "pip install 'freshgate[service]'" in result.output


def test_a_module_of_freshgate_itself_that_is_missing_is_no_matter_of_extras(monkeypatch):
    _brought_by(monkeypatch, "freshgate_service.not_there")
    with pytest.raises(ModuleNotFoundError):
        CliRunner().invoke(cli.main, ["serve"], catch_exceptions=False)


def test_the_installed_script_ends_with_the_same_status(folder):
    def status(*arguments: str) -> int:
        return subprocess.run([INSTALLED, *arguments], capture_output=True, check=False).returncode

    assert status("validate", "-f", str(folder)) == DONE
    write(folder, "wrong", [source("wrong", ttl="soon")])
    assert status("validate", "-f", str(folder)) == REFUSED
    assert status("validate") == MISUSED


# --- validate ----------------------------------------------------------------------------------------------------


def test_validate_says_what_is_fine(folder):
    result = run("validate", "-f", folder)
    assert result.exit_code == DONE
    assert result.output == (
        "Workspace acme/support is fine: "
        "sources accounts, tickets; policies 1 Allow, 0 Deny; issuers kubernetes, corp.\n"
    )


def test_validate_says_of_each_refusal_where_it_is_what_is_wrong_how_to_mend_it_and_what_is_in_force(folder):
    write(folder, "policies", [policy(), policy("bad", "Deny", rules=[{"sources": ["ticket"], "everything": True}])])
    write(folder, "z", [source("unused", ttl=None)])
    result = run("validate", "-f", folder)
    assert result.exit_code == REFUSED
    lines = result.output.splitlines()
    assert lines == [
        f"{folder}/policies.yaml:19: EntitlementPolicy acme/bad: spec.rules[0].sources[0]: SourceNotFound: "
        "there is no MemorySource `ticket` in this namespace. "
        "Correct the name, create the MemorySource, or take it out of the rule. Until then it denies everything.",
        f"{folder}/z.yaml:1: MemorySource acme/unused: spec.ttl: FieldRequired: it is required and absent. Add it. "
        "Until then it is left out.",
        "Error: 2 refused.",
    ]


def test_validate_names_the_file_that_cannot_be_read_and_the_line(folder):
    (folder / "b.yaml").write_text("a: 1\nb: no\n", encoding="utf-8")
    result = run("validate", "-f", folder)
    assert result.exit_code == REFUSED
    assert f"{folder}/b.yaml:2: NotYaml: `no` means a truth value" in result.output


def test_validate_finds_a_name_that_two_files_give(folder):
    write(folder, "again", [source("tickets")])
    (line, _) = run("validate", "-f", folder).output.splitlines()
    assert "MemorySource acme/tickets: metadata.name: DuplicateResource" in line
    assert "again.yaml:1" in line
    assert "desk.yaml:1" in line


def test_validate_points_out_what_is_probably_not_meant(folder):
    write(folder, "more", [policy("p", workspaces=["suport"]), {"apiVersion": "v1", "kind": "Secret"}])
    result = run("validate", "-f", folder)
    assert result.exit_code == DONE
    notes = [line for line in result.output.splitlines() if line.startswith("note: ")]
    assert ["suport" in line for line in notes] == [False, True]
    assert "a Secret is none of Freshgate's kinds" in notes[0]


def test_validate_misses_secrets_only_where_it_is_given_their_folder(folder, tmp_path):
    secrets = tmp_path / "secrets"
    for path in ("acme/support-db", "store"):
        (secrets / path).mkdir(parents=True)
        (secrets / path / "dsn").write_text("postgres://desk:hunter2@db/desk", encoding="utf-8")
    assert run("validate", "-f", folder, "--secrets", secrets).exit_code == DONE
    (secrets / "acme/support-db/dsn").unlink()
    result = run("validate", "-f", folder, "--secrets", secrets)
    assert result.exit_code == REFUSED
    assert "CredentialNotFound" in result.output
    assert "hunter2" not in result.output
    assert run("validate", "-f", folder).exit_code == DONE


def test_validate_of_a_folder_without_manifests_says_so(tmp_path):
    result = run("validate", "-f", tmp_path)
    assert result.exit_code == REFUSED
    assert "holds no resource of Freshgate" in result.output


# --- compile -----------------------------------------------------------------------------------------------------


def test_compile_prints_the_configuration_and_always_the_same_bytes(folder, tmp_path):
    result = run("compile", "-f", folder)
    assert result.exit_code == DONE
    printed = json.loads(result.stdout)
    assert (printed["namespace"], printed["workspace"]) == ("acme", "support")
    assert [each["name"] for each in printed["entitlements"]["policies"]] == ["emea"]
    write(tmp_path / "moved", "one", [*reversed(desk()), policy()])
    assert run("compile", "-f", tmp_path / "moved").stdout == result.stdout


def test_compile_prints_what_would_be_in_force_and_refuses_the_rest_beside_it(folder):
    write(folder, "bad", [policy("bad", "Deny", subjects=[])])
    result = run("compile", "-f", folder)
    assert result.exit_code == REFUSED
    assert json.loads(result.stdout)["entitlements"]["denied"] == ["bad"]
    assert "EntitlementPolicy acme/bad: spec.subjects" in result.stderr


def test_compile_asks_which_workspace_is_meant_where_there_are_several(folder):
    write(folder, "more", [workspace("sales")])
    result = run("compile", "-f", folder)
    assert result.exit_code == REFUSED
    assert "acme/sales, acme/support" in result.output
    assert "--workspace" in result.output
    assert json.loads(run("compile", "-f", folder, "--workspace", "sales").stdout)["workspace"] == "sales"
