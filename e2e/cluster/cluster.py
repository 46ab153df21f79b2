#!/usr/bin/env python3
"""A real Kubernetes on this machine, without Docker and without an image registry: README.md beside this file.

Only the command line and the order of things: how they are done stands in `onenode`.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from onenode import builds, control_plane, debian, images, node, processes, services
from onenode.commands import say
from onenode.errors import ClusterError
from onenode.layout import CHECKOUT, Layout, layout
from onenode.locks import held


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.verb(arguments, layout(arguments.state, alone=arguments.control_plane_only)) or 0)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


def _build(arguments: argparse.Namespace, where: Layout) -> None:
    if arguments.control_plane_only:
        builds.build(where, builds.CONTROL_PLANE)
        return
    debian.install_missing()
    builds.build(where, builds.ALL)
    images.build_own(where)


def _up(arguments: argparse.Namespace, where: Layout) -> None:
    _build(arguments, where)
    with held(where.lock):
        if _is_up(where):
            say("it is up already")
        else:
            _clear(where)
            start = _start_control_plane if arguments.control_plane_only else _start_cluster
            start(where)
            where.ready.touch()
    say(f"up: export KUBECONFIG={where.kubeconfig}")


def _start_control_plane(where: Layout) -> None:
    control_plane.start(where, control_plane.on_free_ports(), lambda *words: words)


def _start_cluster(where: Layout) -> None:
    say("starting the node")
    created = node.create(where)
    control_plane.start(where, control_plane.IN_NODE, created.inside)
    services.start(where, created)


def _down(_: argparse.Namespace, where: Layout) -> None:
    with held(where.lock):
        _clear(where)
    say(f"down; its logs stay in {where.logs}")


def _clear(where: Layout) -> None:
    """Also what a killed run left behind. Logs stay, for whoever asks why."""
    node.remove(where)
    where.state.mkdir(parents=True, exist_ok=True)
    for path in where.state.iterdir():
        if path == where.logs:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _images(arguments: argparse.Namespace, where: Layout) -> None:
    debian.install_missing()
    builds.build(where, [builds.PAUSE, builds.COREDNS])
    images.build_own(where)
    wanted = [_image(arguments, *pair) for pair in arguments.image]
    images.build(where, wanted)
    running = node.running(where)
    if running is not None and wanted:
        images.import_archives(where, running, wanted)


def _image(arguments: argparse.Namespace, name: str, dockerfile: Path) -> images.Image:
    return images.Image(name, dockerfile.resolve(), arguments.context.resolve(), dict(arguments.build_arg))


def _status(arguments: argparse.Namespace, where: Layout) -> int:
    up = _is_up(where)
    if arguments.kubeconfig or arguments.bin:
        if not up:
            raise ClusterError("it is not up")
        print(where.kubeconfig if arguments.kubeconfig else where.bin)
        return 0
    for process in processes.known(where):
        print(f"{process.name:24} {process.pid:8} {'runs' if process.alive else 'died'}")
    print("up" if up else "down")
    return 0 if up else 1


def _is_up(where: Layout) -> bool:
    known = processes.known(where)
    return bool(known) and where.ready.exists() and all(process.alive for process in known)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cluster.py", description="A real Kubernetes on this machine, without Docker."
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        verb.set_defaults(verb=globals()[f"_{name}"], control_plane_only=False)
        verb.add_argument("--state", type=Path, metavar="DIR", help="the cluster's folder (build/cluster/run)")
        return verb

    build = add("build", "build the programs and images that are missing or out of date")
    up = add("up", "build what is missing, start a cluster and wait until it can run pods")
    down = add("down", "end every process and remove what they made; what was built and the logs stay")
    status = add("status", "show the processes; exit status 0 only where the cluster is up")
    for verb in (build, up, down, status):
        verb.add_argument("--control-plane-only", action="store_true", help="etcd and API server alone, on loopback")
    only = status.add_mutually_exclusive_group()
    only.add_argument("--kubeconfig", action="store_true", help="print the path of the kubeconfig, nothing else")
    only.add_argument("--bin", action="store_true", help="print the folder of kubectl and helm, nothing else")

    build_images = add("images", "build images from Dockerfiles, and import them where a cluster is up")
    build_images.add_argument("image", nargs="*", type=_named_path, metavar="NAME=DOCKERFILE")
    build_images.add_argument(
        "--context", type=Path, default=CHECKOUT, metavar="DIR", help="what COPY sees (the checkout)"
    )
    build_images.add_argument("--build-arg", action="append", type=_pair, default=[], metavar="NAME=VALUE")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _named_path(text: str) -> tuple[str, Path]:
    name, value = _pair(text)
    return name, Path(value)


if __name__ == "__main__":
    sys.exit(main())
