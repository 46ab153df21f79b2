"""What users write, version v1alpha1 of the group freshgate.dev: its three kinds, their specs and their statuses."""

from freshgate_crds.v1alpha1.entitlementpolicies import EntitlementPolicy
from freshgate_crds.v1alpha1.memorysources import MemorySource
from freshgate_crds.v1alpha1.models import GROUP, VERSION, Condition, Resource
from freshgate_crds.v1alpha1.workspaces import Workspace

KINDS: tuple[type[Resource], ...] = (MemorySource, Workspace, EntitlementPolicy)

__all__ = [
    "GROUP",
    "KINDS",
    "VERSION",
    "Condition",
    "EntitlementPolicy",
    "MemorySource",
    "Resource",
    "Workspace",
]
