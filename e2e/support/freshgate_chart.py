"""The chart: rendered, and installed as a user would."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from freshgate_clusters import RELEASE, ROOT, SYSTEM, Images
from freshgate_kubectl import helm

CHART = ROOT / "helm" / "freshgate"
OPERATOR = "freshgate-operator"

MUTATION = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"


def values_of(images: Images) -> list[str]:
    return [f"--set=images.operator={images.operator}", f"--set=images.service={images.service}"]


def install(values: Iterable[str], folder: Path = CHART) -> None:
    options = [f"--namespace={SYSTEM}", "--create-namespace", "--wait", "--timeout=120s"]
    helm("upgrade", "--install", RELEASE, folder, *options, *values)


def render(*options: str) -> list[dict[str, Any]]:
    text = helm("template", RELEASE, CHART, f"--namespace={SYSTEM}", *options)
    return [document for document in yaml.safe_load_all(text) if document]


def kinds(documents: Iterable[dict[str, Any]]) -> set[str]:
    return {document["kind"] for document in documents}
