"""`freshgate validate` and `freshgate compile`: what a cluster's API server and operator would say of manifests."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from freshgate_crds.compile import (
    LOCAL_ISSUER,
    Compilation,
    IssuerKeys,
    Outcome,
    compile_workspace,
    merged,
    remarks,
    unclaimed,
)
from freshgate_crds.compiled import KUBERNETES_ISSUER, Config, Credential, Revision
from freshgate_crds.manifests import Manifests, Place, choose_workspace, load_directory
from freshgate_crds.secret_files import find_all

_NO_KEYS = IssuerKeys(url="", jwks='{"keys": []}')
"""Of issuers whose keys only a running workspace has."""

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_manifests = click.option(
    "-f", "--file", "folder", required=True, type=_FOLDER, help="Folder of manifests, read with all its subfolders."
)


@click.command()
@_manifests
@click.option("--secrets", type=_FOLDER, help="Folder of secrets: check that each one which is referred to is there.")
def validate(folder: Path, secrets: Path | None) -> None:
    """Say what is wrong with manifests, and how to mend it.

    Each line names the file, the resource, the field, the reason and the mend, and what is in force until then. What a
    cluster's API server and operator would refuse is refused here.

    \b
    freshgate validate -f manifests
    freshgate validate -f manifests --secrets secrets
    """
    manifests = load_directory(folder)
    if not manifests.documents and not manifests.problems:
        raise click.ClickException(f"{folder} holds no resource of Freshgate. Give the folder of your manifests.")
    for note in (*manifests.notes, *remarks(manifests)):
        click.echo(f"note: {_located(folder, note.place, note.text)}")
    compilations = {
        (namespace, name): _compiled(manifests, namespace, name, _available(secrets, namespace))
        for namespace, name in manifests.workspaces
    }
    lines = [*_problems(folder, manifests), *_refusals(folder, _outcomes(manifests, compilations.values(), secrets))]
    for line in lines:
        click.echo(line)
    if lines:
        raise click.ClickException(f"{len(lines)} refused.")
    if not compilations:
        raise click.ClickException(f"{folder} holds no Workspace, so nothing would be served. Add one.")
    for compilation in compilations.values():
        if compilation.config:
            click.echo(_fine(compilation.config))


@click.command("compile")
@_manifests
@click.option("--workspace", help="Name of the Workspace; needed where there are several.")
@click.option("--namespace", help="Its namespace.")
def compile_manifests(folder: Path, workspace: str | None, namespace: str | None) -> None:
    """Print what a workspace's service is to obey, as JSON.

    The same manifests always give the same bytes: what only a running workspace knows (revision, stamp, cluster, keys)
    is left blank. What is refused goes to standard error, and the rest is printed as it would be in force.

    \b
    freshgate compile -f manifests
    freshgate compile -f manifests --workspace support --namespace acme
    """
    manifests = load_directory(folder)
    namespace, workspace = choose_workspace(manifests, workspace, namespace)
    compilation = _compiled(manifests, namespace, workspace)
    if compilation.config:
        click.echo(compilation.config.model_dump_json(indent=2))
    lines = [*_problems(folder, manifests), *_refusals(folder, compilation.outcomes)]
    for line in lines:
        click.echo(line, err=True)
    if lines:
        raise click.ClickException(f"{len(lines)} refused.")


def _compiled(
    manifests: Manifests, namespace: str, workspace: str, available: Collection[Credential] | None = None
) -> Compilation:
    return compile_workspace(
        manifests,
        workspace,
        namespace,
        cluster_uid="",
        revision=Revision(workspace_uid="", counter=0),
        stamp=datetime.fromtimestamp(0, UTC),
        available=available,
        issuer_keys=dict.fromkeys((KUBERNETES_ISSUER, LOCAL_ISSUER), _NO_KEYS),
    )


def _available(secrets: Path | None, namespace: str) -> Collection[Credential] | None:
    return find_all(secrets, namespace).keys() if secrets else None


def _outcomes(manifests: Manifests, compilations: Collection[Compilation], secrets: Path | None) -> tuple[Outcome, ...]:
    """Of all resources, those that no workspace speaks of too."""
    outcomes = [outcome for compilation in compilations for outcome in compilation.outcomes]
    claimed = {outcome.identity for outcome in outcomes}
    for namespace in sorted({document.namespace for document in manifests.documents}):
        outcomes += unclaimed(manifests, namespace, claimed, _available(secrets, namespace))
    return merged(outcomes)


# --- as lines ----------------------------------------------------------------------------------------------------


def _problems(folder: Path, manifests: Manifests) -> Iterator[str]:
    for problem in manifests.problems:
        yield _located(folder, problem.place, f"{problem.reason}: {problem.message}")


def _refusals(folder: Path, outcomes: Collection[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        for refusal in outcome.refusals:
            resource = f"{refusal.kind} {refusal.namespace}/{refusal.name}"
            text = f"{refusal.field}: {refusal.reason}: {refusal.problem}. {refusal.mend}. {outcome.standing.sentence}"
            yield _located(folder, refusal.place, f"{resource}: {text}")


def _located(folder: Path, place: Place | None, text: str) -> str:
    return f"{folder / place.file}:{place.line}: {text}" if place else text


def _fine(config: Config) -> str:
    policies = Counter(policy.effect.value for policy in config.entitlements.policies)
    return (
        f"Workspace {config.namespace}/{config.workspace} is fine: "
        f"sources {', '.join(source.name for source in config.sources)}; "
        f"policies {policies['Allow']} Allow, {policies['Deny']} Deny; "
        f"issuers {', '.join(issuer.name for issuer in config.issuers)}."
    )
