"""The service's commands, for people at a terminal. Heavy parts are imported by the command that needs them."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from freshgate_crds.durations import parse as parse_duration
from freshgate_crds.errors import DurationMalformed, ManifestError
from freshgate_service.errors import FreshgateError

T = TypeVar("T")

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
PORT = click.IntRange(0, 65535)
DATA = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".freshgate"),
    show_default=True,
    help="Where the embedded Postgres and the local issuers' keys are kept.",
)


class Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(value)
        except DurationMalformed as error:
            self.fail(str(error), param, ctx)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command to its end. What it refuses is one sentence and exit status 1."""
    try:
        return asyncio.run(work)
    except (FreshgateError, ManifestError) as error:
        _refuse(str(error))
    except OSError as error:  # a port in use, a disk that is full, a folder that is not ours
        _refuse(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _refuse(problem: str) -> NoReturn:
    raise click.ClickException(problem)


@click.command()
@click.option("-f", "--file", "manifests", type=DIRECTORY, required=True, help="Folder of manifests.")
@click.option("--secrets", type=DIRECTORY, help="Folder of secrets: NAMESPACE/SECRET/KEY, else SECRET/KEY.")
@DATA
@click.option("--workspace", help="Which Workspace to serve, where there are several.")
@click.option("--namespace", help="Its namespace, where the name alone does not tell.")
@click.option("--port", type=PORT, default=8080, show_default=True, help="REST under /api/v1, MCP at /api/mcp.")
@click.option("--ops-port", type=PORT, default=9090, show_default=True, help="/livez, /readyz, /metrics, /status.")
@click.option("--verbose", is_flag=True, help="Log every query's audit line and every refresh.")
def serve(
    manifests: Path,
    secrets: Path | None,
    data: Path,
    workspace: str | None,
    namespace: str | None,
    port: int,
    ops_port: int,
    verbose: bool,
) -> None:
    """Run a workspace on this machine, from its manifests.

    The same YAML as in a cluster. Where the Workspace names no store, an embedded Postgres is started; each declared
    issuer is played by a local one, for which `freshgate token` makes tokens. Changes of the manifests are followed;
    what is refused keeps its last good form, and the log says why.

    \b
    Example:
      freshgate serve -f manifests --secrets secrets
      freshgate token --user ana --group emea-support
      freshgate search --token "$TOKEN" "refund invoice"
    """
    from freshgate_service.laptop.publisher import Place
    from freshgate_service.laptop.serving import serve_manifests

    place = Place(manifests, secrets, data, workspace, namespace, port, ops_port)
    run(serve_manifests(place, verbose=verbose))


@click.command()
@DATA
@click.option("--user", help="The person's name, as the issuer's claim mapping has it.")
@click.option("--group", "groups", multiple=True, help="A group of the person; may be repeated.")
@click.option("--claim", "claims", multiple=True, metavar="K=V", help="Another claim; a repeated one makes a list.")
@click.option("--service-account", metavar="NS/NAME", help="An agent's ServiceAccount instead of a person.")
@click.option("--issuer", help="Which issuer, where the Workspace declares several.")
@click.option("--ttl", type=Duration(), default="1h", show_default=True, help="How long the token is valid.")
def token(
    data: Path,
    user: str | None,
    groups: tuple[str, ...],
    claims: tuple[str, ...],
    service_account: str | None,
    issuer: str | None,
    ttl: float,
) -> None:
    """Print a token of a local issuer.

    It is signed with a key under --data that `freshgate serve` trusts, and verified like any other.

    \b
    Example:
      TOKEN=$(freshgate token --user ana@desk.example --group emea-support --claim accounts=7 --claim accounts=9)
    """
    from freshgate_service.laptop.issuers import Issuers

    if (user is None) == (service_account is None):
        raise click.UsageError("name exactly one of --user and --service-account")
    issuers, asserted = Issuers(data), _claims(claims)
    try:
        if service_account is not None:
            click.echo(issuers.service_account_token(service_account, asserted, ttl))
        else:
            click.echo(issuers.user_token(issuer or issuers.only(), str(user), groups, asserted, ttl))
    except FreshgateError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename}: {error.strerror}")


def _claims(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`k=v` pairs; values are text, a repeated key makes a list."""
    claims: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--claim takes name=value, not {pair!r}")
        claims[name] = value if name not in claims else [*_listed(claims[name]), value]
    return claims


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@click.command()
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="The service.")
@click.option("--token", envvar="FRESHGATE_TOKEN", required=True, help="Bearer token; also from FRESHGATE_TOKEN.")
@click.option("--on-behalf-of", help="The person's token, where --token is an agent's.")
@click.option("--limit", type=click.IntRange(1, 50), help="Results at the most.")
@click.option("--source", "sources", multiple=True, help="Only from this source; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as it came.")
@click.argument("query")
def search(
    url: str,
    token: str,
    on_behalf_of: str | None,
    limit: int | None,
    sources: tuple[str, ...],
    as_json: bool,
    query: str,
) -> None:
    """Ask a running service, and show the answer as a table."""
    from freshgate_service.laptop.asking import ask, table

    answer = run(ask(url, token, query, on_behalf_of=on_behalf_of, limit=limit, sources=sources))
    if as_json:
        click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        table(answer)


@click.command()
@click.option("-f", "--file", "manifests", type=DIRECTORY, required=True, help="Folder of manifests.")
@DATA
@click.option("--secrets", type=DIRECTORY, help="Folder of secrets, where the Workspace names a store.")
@click.option("--workspace", help="Which Workspace, where there are several.")
@click.option("--namespace", help="Its namespace, where the name alone does not tell.")
@click.option("--token", envvar="FRESHGATE_TOKEN", required=True, help="The asker's token; also from FRESHGATE_TOKEN.")
@click.option("--on-behalf-of", help="The person's token, where --token is an agent's.")
@click.argument("query")
def explain(
    manifests: Path,
    data: Path,
    secrets: Path | None,
    workspace: str | None,
    namespace: str | None,
    token: str,
    on_behalf_of: str | None,
    query: str,
) -> None:
    """Show why each object surfaces for an asker: the policies that let it, the terms that matched.

    For the platform team: it reads the manifests and the store itself. It asks no source, so nothing is refreshed. No
    route of the service tells this.
    """
    from freshgate_service.laptop.explaining import explain_query
    from freshgate_service.laptop.publisher import Place

    place = Place(manifests, secrets, data, workspace, namespace)
    run(explain_query(place, token, on_behalf_of, query))


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".freshgate/demo"),
    show_default=True,
    help="Where the demo keeps its two Postgres servers, manifests and keys.",
)
@click.option("--stay", is_flag=True, help="Keep everything running afterwards, to try it yourself.")
@click.option("--port", type=PORT, default=8080, show_default=True)
@click.option("--ops-port", type=PORT, default=9090, show_default=True)
def demo(data: Path, stay: bool, port: int, ops_port: int) -> None:
    """Tell the whole story on real records, in one run.

    A support desk in a Postgres of its own is remembered, asked about by people and agents who may see different parts
    of it, changed, and stopped. Each line says what was observed; the exit status is 1 if one is not as promised.
    """
    from freshgate_service.laptop.demo import tell

    if not run(tell(data, port, ops_port, stay=stay)):
        raise SystemExit(1)


@click.command()
@click.option("--config", type=DIRECTORY, required=True, help="The mounted Secret with the compiled configuration.")
@click.option("--host", default="0.0.0.0", show_default=True, help="Where the query port listens.")  # noqa: S104 - in a pod
@click.option("--port", type=PORT, default=8080, show_default=True)
@click.option("--ops-host", help="Where the ops port listens; --host if absent.")
@click.option("--ops-port", type=PORT, default=9090, show_default=True)
@click.option(
    "--scrape-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the token that lets Prometheus read /metrics.",
)
@click.option(
    "--scrape-account",
    "scrape_accounts",
    multiple=True,
    metavar="NS/NAME",
    help="A ServiceAccount that may read it too.",
)
@click.option("--drain", type=Duration(), default="0s", help="How long to serve on after SIGTERM, for late senders.")
@click.option("--sidecar", is_flag=True, help="Serve one pod: listen on 127.0.0.1, never run the background loop.")
@click.option("--holder", envvar="HOSTNAME", default="service", help="This process's name in leases.")
def service(
    config: Path,
    host: str,
    port: int,
    ops_host: str | None,
    ops_port: int,
    scrape_token_file: Path | None,
    scrape_accounts: tuple[str, ...],
    drain: float,
    sidecar: bool,
    holder: str,
) -> None:
    """Run the retrieval service on a published configuration. This is what the image runs."""
    from freshgate_service import logs
    from freshgate_service.serving import Listen, Scrape, serve_published

    logs.configure("info")
    here = "127.0.0.1" if sidecar else host
    listen = Listen(here, port, here if sidecar else ops_host or here, ops_port, drain)
    scrape = Scrape(scrape_token_file, scrape_accounts)
    run(serve_published(config, listen, sidecar=sidecar, holder=holder, scrape=scrape))
