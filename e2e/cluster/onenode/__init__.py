"""One Kubernetes node built from Go modules and Debian packages, without Docker and without an image registry."""
