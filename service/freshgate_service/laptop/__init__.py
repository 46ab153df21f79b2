"""The same manifests without a cluster: an embedded Postgres, local issuers, secrets from a folder.

Nothing here is a bypass: the service that it starts verifies, entitles and refreshes as it does anywhere.
"""
