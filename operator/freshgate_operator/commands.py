"""`freshgate operator`: what the operator's image runs. Heavy parts are imported when it is called."""

import asyncio
from pathlib import Path

import click

from freshgate_operator.errors import OperatorError


def _pairs(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.BadParameter("write NAME=VALUE")
    return {name: value for name, _, value in pairs}


@click.command()
@click.option("--image", required=True, help="The image of the service, for the pods of every workspace.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="Serve this namespace alone, and read nothing of the cluster; may be repeated. Absent: all namespaces.",
)
@click.option(
    "--image-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    show_default=True,
)
@click.option(
    "--touch-pods/--no-touch-pods",
    default=False,
    show_default=True,
    help="Touch an annotation of pods, so that a change reaches them in seconds and not within 90.",
)
@click.option(
    "--pod-defaults",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML with fields of a pod's spec for every service: nodeSelector, tolerations, affinity and the like.",
)
@click.option(
    "--egress-port",
    "egress_ports",
    type=click.IntRange(1, 65_535),
    multiple=True,
    help="A port that services may connect to, beside those in their configuration; may be repeated.",
)
@click.option(
    "--scrape-namespace",
    "scrape_namespaces",
    multiple=True,
    help="A namespace whose pods may reach the services' ops port; may be repeated.",
)
@click.option(
    "--monitor-label",
    "monitor_labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="A label for ServiceMonitors, by which a Prometheus finds them; may be repeated.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For a start outside of a pod.",
)
@click.option("--host", default="0.0.0.0", show_default=True, help="Where /livez and /metrics listen.")  # noqa: S104 - in a pod
@click.option("--port", default=9090, show_default=True)
def operator(
    image: str,
    namespaces: tuple[str, ...],
    image_pull_policy: str,
    touch_pods: bool,
    pod_defaults: Path | None,
    egress_ports: tuple[int, ...],
    scrape_namespaces: tuple[str, ...],
    monitor_labels: dict[str, str],
    kubeconfig: Path | None,
    host: str,
    port: int,
) -> None:
    """Run the operator. This is what its image runs.

    It watches MemorySources, EntitlementPolicies and Workspaces, publishes what they mean, and runs a service for each
    Workspace. One process is enough, and there must not be two. Whatever it needs to know is in the cluster: it can be
    stopped at any time, and services answer on without it until their entitlements' maxAge.
    """
    from freshgate_operator import cluster, logs, main, settings

    async def run() -> None:
        configured = await cluster.configuration(kubeconfig)
        chosen = settings.Settings(
            image=image,
            own_namespace=settings.own_namespace(),
            namespaces=namespaces,
            image_pull_policy=image_pull_policy,
            touch_pods=touch_pods,
            pod=settings.pod_defaults(pod_defaults) if pod_defaults else {},
            egress_ports=egress_ports,
            scrape_namespaces=scrape_namespaces,
            monitor_labels=monitor_labels,
        )
        await main.run(configured, chosen, host=host, port=port)

    logs.configure()
    try:
        asyncio.run(run())
    except OperatorError as error:
        raise click.ClickException(str(error)) from error
