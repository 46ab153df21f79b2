"""Every name, label and annotation that the operator gives or looks for. Charts and policies name them too."""

from freshgate_crds.v1alpha1.models import GROUP

OPERATOR = "freshgate-operator"
MANAGED_BY = {"app.kubernetes.io/managed-by": OPERATOR}
OPERATOR_PODS = {"app.kubernetes.io/name": OPERATOR}
"""Labels of the operator's own pods, by which NetworkPolicies let it in."""

CREDENTIALS = f"{GROUP}/credential=true"
"""Selects the Secrets that resources may refer to."""

SERVES = f"{GROUP}/serves"
"""Label on all that is made for a workspace, its pods too; the value is the workspace's name."""

INJECTED = f"{GROUP}/workspace"
"""Label by which a pod asks for a sidecar. The service's own pods must never carry it."""

SIDECAR_CONTAINER = "freshgate"
"""What the sidecar's container is called, and the service's own."""

TOUCHED = f"{GROUP}/touched"
"""The one annotation of pods that the operator may change."""

APPLIED = f"{GROUP}/applied"
"""Hash of what was applied: where it differs, something was left out since."""

SCRAPE_TOKEN_HASH = f"{GROUP}/scrape-token-hash"
"""On pods, which read the token once: another token needs other pods."""

SECRET_TYPE = f"{GROUP}/configuration"
"""Of the published Secrets: a type cannot be changed, as a label can."""

LEASE_NAME = OPERATOR


def child(workspace: str) -> str:
    """Of all that is made for a workspace."""
    return f"{workspace}-freshgate"
