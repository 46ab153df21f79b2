"""Container images without a registry: a base from Debian packages, built on with buildah, handed over as archives.

Every archive stays in the cache folder, so that each later start of a cluster imports it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .commands import run, say
from .layout import TOOLS, Layout
from .locks import held
from .node import Node

BASE = "localhost/freshgate-base:bookworm"

_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# As in the slim images of a registry: half of all files, and nothing that a program reads.
_LEFT_OUT = ("doc", "info", "locale", "man")
_BASE_PACKAGES = "python3,python3-venv,ca-certificates"


@dataclass(frozen=True)
class Image:
    name: str
    dockerfile: Path
    context: Path
    arguments: Mapping[str, str] = field(default_factory=dict)

    def archive(self, layout: Layout) -> Path:
        return layout.images / f"{self.name.replace('/', '_').replace(':', '_')}.tar"


def build_own(layout: Layout) -> None:
    """The base of the project's images, and what each pod needs; only where an input is newer."""
    rootfs = layout.cache / "rootfs"
    _build_if_older(layout, _own("pause", layout.bin), layout.bin / "pause")
    _build_if_older(layout, _own("coredns", layout.bin), layout.bin / "coredns")
    _make_root(rootfs / "rootfs.tar")
    _build_if_older(layout, Image(BASE, TOOLS / "images/base/Dockerfile", rootfs), rootfs / "rootfs.tar")


def build(layout: Layout, images: Iterable[Image]) -> None:
    """Image layers are cached by buildah; the project's base is offered to each Dockerfile as the argument BASE."""
    for image in images:
        _build(layout, image)


def import_archives(layout: Layout, node: Node, images: Sequence[Image] = ()) -> None:
    """The given images, else all that were ever built here."""
    archives = [image.archive(layout) for image in images] or sorted(layout.images.glob("*.tar"))
    for archive in archives:
        # `--local` reads the archive here; without it containerd takes it in as a stream, which is four times as slow.
        node.run(layout.bin / "ctr", "--namespace", "k8s.io", "images", "import", "--local", archive)


def _own(name: str, context: Path) -> Image:
    return Image(f"localhost/{name}:e2e", TOOLS / "images" / name / "Dockerfile", context)


def _build_if_older(layout: Layout, image: Image, *inputs: Path) -> None:
    archive = image.archive(layout)
    newest = max(path.stat().st_mtime for path in (*inputs, image.dockerfile))
    if not archive.exists() or archive.stat().st_mtime < newest:
        _build(layout, image)


def _build(layout: Layout, image: Image) -> None:
    say(f"building the image {image.name}")
    buildah = _buildah(layout)
    arguments = [f"--build-arg={name}={value}" for name, value in {"BASE": BASE, **image.arguments}.items()]
    options = [
        "--isolation=chroot",
        f"--cni-config-dir={layout.cache}",
        "--layers",
        f"--tag={image.name}",
        f"--file={image.dockerfile}",
        *arguments,
    ]
    with held(layout.cache / "images.lock"):
        run([*buildah, "build", *options, *_trust(), image.context])
        archive = image.archive(layout)
        archive.parent.mkdir(parents=True, exist_ok=True)
        fresh = archive.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        run([*buildah, "push", image.name, f"docker-archive:{fresh}:{image.name}"])
        fresh.replace(archive)


def _buildah(layout: Layout) -> list[str]:
    storage = layout.cache / "buildah"
    # What its storage mounts is gone with the mount namespace when it ends.
    private = ["unshare", "--mount", "--"]
    return [
        *private,
        "buildah",
        "--storage-driver=overlay",
        f"--root={storage / 'root'}",
        f"--runroot={storage / 'run'}",
    ]


def _trust() -> list[str]:
    """Installers inside of a build trust whom this machine trusts, for where a package proxy has its own authority."""
    return [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.exists() else []


def _make_root(archive: Path) -> None:
    slim = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _LEFT_OUT]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_BASE_PACKAGES}", *slim, "bookworm"]
    made_by = archive.with_suffix(".command")
    if archive.exists() and made_by.exists() and made_by.read_text() == repr(command):
        return
    say("making a Debian root file system")
    archive.parent.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_name("new.tar")
    run([*command, fresh])
    fresh.replace(archive)
    made_by.write_text(repr(command))
