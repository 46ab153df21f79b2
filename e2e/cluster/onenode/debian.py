"""Installs the Debian packages that a full cluster needs and this machine lacks."""

import os
import shutil
from pathlib import Path

from .commands import run, say

# Package → what shows that it is there. Debian's plugins are the only ones that lie in this folder.
_NEEDED = {
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "ipset": "ipset",
    "iproute2": "ip",
    "conntrack": "conntrack",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "openssl": "openssl",
}


def install_missing() -> None:
    missing = [package for package, sign in _NEEDED.items() if not _present(sign)]
    if not missing:
        return
    say(f"installing {', '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    run([*apt, "update"], env=environment)
    run([*apt, "install", "--yes", "--no-install-recommends", *missing], env=environment)


def _present(sign: str) -> bool:
    return Path(sign).exists() if sign.startswith("/") else shutil.which(sign) is not None
