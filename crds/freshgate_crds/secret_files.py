"""Secrets as files, for a machine without a cluster: DIR/NAMESPACE/SECRET/KEY, else DIR/SECRET/KEY.

It finds them; it never opens one.
"""

from pathlib import Path

from freshgate_crds.compiled import Credential


def find_all(folder: Path, namespace: str) -> dict[Credential, Path]:
    """The credentials of one namespace."""
    return {**_in(folder), **_in(folder / namespace)}


def _in(folder: Path) -> dict[Credential, Path]:
    return {
        Credential(secret=path.parent.name, key=path.name): path
        for path in sorted(folder.glob("*/*"))
        if path.is_file()
    }
