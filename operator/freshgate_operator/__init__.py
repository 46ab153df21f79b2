"""The operator: Kubernetes side effects only (watch, reconcile, publish, status)."""
