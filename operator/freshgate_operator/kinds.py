"""The kinds of objects that the operator reads or writes, and where the API server keeps them."""

from typing import NamedTuple

from freshgate_crds.manifests import API_VERSION, POLICY, SOURCE, WORKSPACE


class Kind(NamedTuple):
    api_version: str
    name: str
    plural: str

    @property
    def group(self) -> str:
        """Empty for the core kinds."""
        return self.api_version.rpartition("/")[0]

    @property
    def root(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"

    def path(self, namespace: str | None, name: str | None = None, *below: str) -> str:
        """Of all objects where no namespace is given, of one where a name is."""
        within = (self.root, "namespaces", namespace) if namespace is not None else (self.root,)
        return "/".join((*within, self.plural, *((name,) if name else ()), *below))


MEMORY_SOURCE = Kind(API_VERSION, SOURCE, "memorysources")
ENTITLEMENT_POLICY = Kind(API_VERSION, POLICY, "entitlementpolicies")
WORKSPACE_KIND = Kind(API_VERSION, WORKSPACE, "workspaces")
WRITTEN = (MEMORY_SOURCE, ENTITLEMENT_POLICY, WORKSPACE_KIND)
"""What users write."""

SECRET = Kind("v1", "Secret", "secrets")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
SERVICE = Kind("v1", "Service", "services")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
SERVICE_MONITOR = Kind("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors")
CHILDREN = (SERVICE_ACCOUNT, SERVICE, DEPLOYMENT, DISRUPTION_BUDGET, NETWORK_POLICY)
"""What is applied for every workspace, beside its Secret."""

POD = Kind("v1", "Pod", "pods")
NAMESPACE = Kind("v1", "Namespace", "namespaces")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
