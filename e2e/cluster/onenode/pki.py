"""The keys, certificates and tokens of one cluster. They live as long as its state folder, and nothing prints them."""

import base64
import csv
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from .commands import run

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
# User → groups, as the API server's bootstrap policy expects them.
_USERS: Mapping[str, str] = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
    "network-policies": "system:masters",
}


def create(folder: Path, *, node: str, addresses: tuple[str, ...]) -> None:
    """A certificate authority, the API server's certificates, the ServiceAccount key and a token for each user."""
    folder.mkdir(parents=True, mode=0o700)
    _certificate(folder, "ca", "/CN=freshgate-e2e", "keyUsage=critical,keyCertSign,cRLSign")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    alternatives = ",".join([f"DNS:{name}" for name in [*names, "localhost"]] + [f"IP:{ip}" for ip in addresses])
    _signed(folder, "apiserver", "/CN=kube-apiserver", f"subjectAltName={alternatives}")
    _signed(folder, "kubelet-client", "/O=system:masters/CN=kube-apiserver", "extendedKeyUsage=clientAuth")
    run(["openssl", "genrsa", "-out", folder / "service-accounts.key", "2048"])
    _write_tokens(folder, {**_USERS, f"system:node:{node}": "system:nodes"})


def _signed(folder: Path, name: str, subject: str, *extensions: str) -> None:
    authority = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key")
    _certificate(folder, name, subject, "basicConstraints=critical,CA:FALSE", *extensions, signer=authority)


def _certificate(folder: Path, name: str, subject: str, *extensions: str, signer: tuple[str | Path, ...] = ()) -> None:
    added = [word for extension in extensions for word in ("-addext", extension)]
    output: list[str | Path] = ["-days", "365", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"]
    run(["openssl", "req", "-x509", *_NEW_KEY, "-subj", subject, *added, *signer, *output])


def _write_tokens(folder: Path, users: Mapping[str, str]) -> None:
    with (folder / "tokens.csv").open("w", newline="") as file:
        csv.writer(file).writerows([secrets.token_hex(16), user, user, groups] for user, groups in users.items())


def token(folder: Path, user: str) -> str:
    with (folder / "tokens.csv").open(newline="") as file:
        return next(row[0] for row in csv.reader(file) if row[1] == user)


def write_kubeconfig(folder: Path, path: Path, *, user: str, server: str) -> None:
    """JSON, which every reader of kubeconfig files takes; self-contained, so that it can be copied."""
    authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    name = "freshgate-e2e"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token(folder, user)}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1))
