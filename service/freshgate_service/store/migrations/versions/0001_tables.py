"""The first tables."""

from alembic import op

revision = "0001"
down_revision = None

# The store's time: the one clock that expiries and ages are counted on.
NOW = """
CREATE FUNCTION freshgate.now() RETURNS double precision LANGUAGE sql VOLATILE
AS 'SELECT extract(epoch FROM clock_timestamp())::double precision'
"""

# `changes` orders the versions of one object, `tokens` the claims of one lease.
SEQUENCES = ("CREATE SEQUENCE freshgate.changes", "CREATE SEQUENCE freshgate.tokens")

WORKSPACES = """
CREATE TABLE freshgate.workspaces (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cluster_uid text NOT NULL,
    namespace text NOT NULL,
    workspace text NOT NULL,
    revision_uid text,
    revision_counter bigint,
    revision_stamp timestamptz,
    purged_in xid8,
    purged_through xid8,
    UNIQUE (cluster_uid, namespace, workspace)
)
"""

# All that a write compares stands in this one row, so that its lock alone decides between two writers.
# A row without hashes is the trace of a deleted object.
CLOCKS = """
CREATE TABLE freshgate.clocks (
    workspace integer NOT NULL REFERENCES freshgate.workspaces ON DELETE CASCADE,
    source text NOT NULL,
    record_id text NOT NULL,
    confirmed_at double precision NOT NULL,
    outdated_at double precision,
    version text,
    content_hash text,
    access_hash text,
    spec_hash text,
    change bigint NOT NULL DEFAULT nextval('freshgate.changes'),
    changed_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (workspace, source, record_id)
)
"""

FEED = "CREATE INDEX clocks_by_transaction ON freshgate.clocks (workspace, changed_in)"

# `attributes` and `readers` are JSON as text: jsonb would change numbers, and nothing here looks into them.
OBJECTS = """
CREATE TABLE freshgate.objects (
    workspace integer NOT NULL,
    source text NOT NULL,
    record_id text NOT NULL,
    title text NOT NULL,
    summary text NOT NULL,
    url text,
    attributes text NOT NULL,
    readers text NOT NULL,
    condenser text NOT NULL,
    changed_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (workspace, source, record_id),
    FOREIGN KEY (workspace, source, record_id) REFERENCES freshgate.clocks ON DELETE CASCADE
)
"""

# Unlogged: a lease is worth nothing after a crash, and then nobody holds one.
LEASES = """
CREATE UNLOGGED TABLE freshgate.leases (
    workspace integer NOT NULL,
    name text NOT NULL,
    holder text NOT NULL,
    token bigint NOT NULL,
    expires_at double precision NOT NULL,
    PRIMARY KEY (workspace, name)
)
"""

SOURCES = """
CREATE TABLE freshgate.sources (
    workspace integer NOT NULL REFERENCES freshgate.workspaces ON DELETE CASCADE,
    name text NOT NULL,
    spec_hash text,
    complete boolean NOT NULL,
    last_list double precision,
    last_sweep double precision,
    last_success double precision,
    last_error text,
    last_error_at double precision,
    PRIMARY KEY (workspace, name)
)
"""


def upgrade() -> None:
    for statement in (NOW, *SEQUENCES, WORKSPACES, CLOCKS, FEED, OBJECTS, LEASES, SOURCES):
        op.execute(statement)
