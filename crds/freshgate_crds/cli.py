"""The command `freshgate`: a group whose commands are brought by whichever halves of it are installed.

Its help must come quickly and without any of them, so it imports nothing but click, and a command's module only once
that command is called. Exit status 0 is done, 1 refused or failed, 2 misused.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import click

from freshgate_crds.errors import ManifestError

GROUP = "freshgate.commands"

SUMMARIES = {
    "demo": "See the whole story on real records, in one run.",
    "validate": "Say what is wrong with manifests, and how to mend it.",
    "compile": "Print what a workspace's service is to obey.",
    "serve": "Run a workspace from its manifests, on this machine.",
    "token": "Print a token of a local issuer, to ask with.",
    "search": "Ask a workspace a question.",
    "explain": "Say why each object surfaced, or did not.",
    "service": "Run a workspace as its image does, in a cluster.",
    "operator": "Run the operator, in a cluster.",
}
"""Of each command, in the order in which a newcomer needs them."""


class Commands(click.Group):
    """Loads a command when it is called, and says what to install where its half of Freshgate is not there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        there = {entry.name for entry in _entries()}
        return [name for name in SUMMARIES if name in there] + sorted(there - SUMMARIES.keys())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _entry(cmd_name)
        if entry is None:
            return None
        try:
            command: click.Command = entry.load()
        except ModuleNotFoundError as error:
            _not_installed(cmd_name, entry, error)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARIES.get(name, "")) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ManifestError as error:
            raise click.ClickException(str(error)) from error
        except ModuleNotFoundError as error:
            name = ctx.invoked_subcommand or ""
            entry = _entry(name)
            if entry is None:
                raise
            _not_installed(name, entry, error)


def _entries() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _entry(name: str) -> EntryPoint | None:
    return next((entry for entry in _entries() if entry.name == name), None)


def _not_installed(name: str, entry: EntryPoint, error: ModuleNotFoundError) -> NoReturn:
    """A command's package stands beside this one always; what it stands on is installed with the extra of its name."""
    half = entry.module.split(".")[0]
    extra = half.removeprefix("freshgate_")
    if error.name is None or error.name.startswith("freshgate_") or extra == "crds":
        raise error
    raise click.ClickException(
        f"`freshgate {name}` needs {error.name}, which is not installed. Run: pip install 'freshgate[{extra}]'"
    ) from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: freshgate COMMAND --help",
)
@click.version_option(package_name="freshgate", prog_name="freshgate", message="%(prog)s %(version)s")
def main() -> None:
    """An agent memory layer over your own systems of record: entitled first, fresh or labelled, explained.

    \b
    To see it work, on records of its own:
      freshgate demo

    \b
    To run it on yours, from a folder of manifests and one of secrets:
      freshgate validate -f manifests --secrets secrets
      freshgate serve -f manifests --secrets secrets

    \b
    And in another terminal, to ask it as somebody:
      freshgate search --token "$(freshgate token --user ana)" "refund of a broken kettle"

    Exit status: 0 done, 1 refused or failed, 2 misused.
    """
