"""The SQL of the store, each statement a transaction of its own.

Two rules make it right under any interleaving. All that a write compares stands in the row of `clocks`, and that row is
locked before anything else of the object is touched, so the comparison is made against what is there when the write
applies, not when it began. And rows are locked in the order of their names, leases first, so that two writers never
wait for each other.

Rows travel to Postgres as one JSON array. Arrays of Postgres would make the driver ask about their types first, and
change a setting of the session to do so.
"""

# ruff: noqa: S608 - what is put together here are constants of this file

CLOCK = """
    source, record_id, confirmed_at, coalesce(outdated_at >= confirmed_at, false) AS outdated, version,
    content_hash, access_hash, spec_hash, change"""

CONTENT = "title, summary, url, attributes, readers, condenser"

NOW = "SELECT freshgate.now()"

ADD_WORKSPACE = """
INSERT INTO freshgate.workspaces (cluster_uid, namespace, workspace) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"""

FIND_WORKSPACE = """
SELECT id FROM freshgate.workspaces WHERE cluster_uid = $1 AND namespace = $2 AND workspace = $3"""

# --- reading -----------------------------------------------------------------------------------------------------

CURSOR = "SELECT pg_postmaster_start_time()::text, pg_current_snapshot()::text"

LOAD = f"""
SELECT {CLOCK}, {CONTENT}
FROM (SELECT * FROM freshgate.clocks WHERE workspace = $1 AND content_hash IS NOT NULL) AS clocks
JOIN (SELECT source, record_id, {CONTENT} FROM freshgate.objects WHERE workspace = $1) AS objects
USING (source, record_id)"""

# A cursor is the snapshot of the last reading. What that one did not see and this one does has changed since, in
# whatever order the transactions committed. The last condition leaves out rows that were restored from another server
# and name transactions which this one has yet to reach; they were loaded, and every change gives them a number of here.
_NEWS = """
    changed_in >= pg_snapshot_xmin($2::text::pg_snapshot)
    AND NOT pg_visible_in_snapshot(changed_in, $2::text::pg_snapshot)
    AND pg_visible_in_snapshot(changed_in, pg_current_snapshot())"""

# `lost`: deletions that the cursor has not seen were purged. At least one row, unless the whole workspace is gone.
# Content comes along only where it changed too; LIMIT keeps it a look-up for each change, however many there are.
CHANGES = f"""
SELECT state.*, news.*
FROM (
    SELECT pg_postmaster_start_time()::text AS server, pg_current_snapshot()::text AS snapshot, coalesce(
        purged_through >= pg_snapshot_xmin($2::text::pg_snapshot)
        AND NOT pg_visible_in_snapshot(purged_in, $2::text::pg_snapshot)
        AND pg_visible_in_snapshot(purged_in, pg_current_snapshot()), false) AS lost
    FROM freshgate.workspaces WHERE id = $1
) AS state
LEFT JOIN (
    SELECT {CLOCK}, {CONTENT}
    FROM freshgate.clocks LEFT JOIN LATERAL (
        SELECT {CONTENT} FROM freshgate.objects
        WHERE workspace = $1 AND source = clocks.source AND record_id = clocks.record_id AND {_NEWS} LIMIT 1
    ) AS objects ON true
    WHERE workspace = $1 AND {_NEWS}
) AS news ON NOT lost"""

# --- writing -----------------------------------------------------------------------------------------------------

_WAKE = "pg_notify('freshgate_' || $1::integer, '')"

# A confirmation from the future vouches for nothing, so any read replaces it.
_OLDER = "(clocks.confirmed_at < $2 OR clocks.confirmed_at > freshgate.now())"

_CHANGED = "change = nextval('freshgate.changes'), changed_in = pg_current_xact_id()"

# $1 workspace, $2 start of the read, $3 reading spec, $4 the lines, each with the lease that guards it, if any.
WRITE = f"""
WITH line AS MATERIALIZED (
    SELECT * FROM json_to_recordset($4::json) AS line (
        kind text, source text, record_id text, version text, content_hash text, access_hash text,
        title text, summary text, url text, attributes text, readers text, condenser text,
        lease text, token bigint)
), held AS MATERIALIZED (
    SELECT name FROM freshgate.leases JOIN line ON (name, leases.token) = (line.lease, line.token)
    WHERE workspace = $1 ORDER BY name FOR UPDATE OF leases
), released AS (
    DELETE FROM freshgate.leases USING held WHERE workspace = $1 AND leases.name = held.name
), allowed AS MATERIALIZED (
    SELECT line.* FROM line LEFT JOIN held ON name = lease WHERE lease IS NULL OR name IS NOT NULL
), locked AS MATERIALIZED (
    SELECT allowed.* FROM freshgate.clocks JOIN allowed USING (source, record_id)
    WHERE workspace = $1 AND kind = 'confirm' ORDER BY source, record_id FOR UPDATE OF clocks
), confirmed AS (
    UPDATE freshgate.clocks
    SET confirmed_at = $2, version = coalesce(locked.version, clocks.version), {_CHANGED}
    FROM locked
    WHERE workspace = $1 AND (clocks.source, clocks.record_id) = (locked.source, locked.record_id)
    AND {_OLDER} AND spec_hash = $3
    AND (clocks.content_hash, clocks.access_hash) = (locked.content_hash, locked.access_hash)
    RETURNING clocks.*
), replaced AS (
    INSERT INTO freshgate.clocks AS clocks
    (workspace, source, record_id, confirmed_at, version, content_hash, access_hash, spec_hash)
    SELECT $1, source, record_id, $2, version, content_hash, access_hash, CASE kind WHEN 'put' THEN $3 END
    FROM allowed WHERE kind <> 'confirm' ORDER BY source, record_id
    ON CONFLICT (workspace, source, record_id) DO UPDATE
    SET confirmed_at = $2, version = coalesce(excluded.version, clocks.version), content_hash = excluded.content_hash,
        access_hash = excluded.access_hash, spec_hash = excluded.spec_hash, {_CHANGED}
    WHERE {_OLDER}
    RETURNING clocks.*
), content AS (
    INSERT INTO freshgate.objects (workspace, source, record_id, {CONTENT})
    SELECT $1, source, record_id, {CONTENT} FROM allowed JOIN replaced USING (source, record_id) WHERE kind = 'put'
    ON CONFLICT (workspace, source, record_id) DO UPDATE
    SET title = excluded.title, summary = excluded.summary, url = excluded.url, attributes = excluded.attributes,
        readers = excluded.readers, condenser = excluded.condenser, changed_in = pg_current_xact_id()
    RETURNING source, record_id, {CONTENT}
), erased AS (
    DELETE FROM freshgate.objects USING replaced
    WHERE objects.workspace = $1 AND replaced.content_hash IS NULL
    AND (objects.source, objects.record_id) = (replaced.source, replaced.record_id)
)
SELECT {CLOCK}, {CONTENT}, {_WAKE}
FROM (TABLE confirmed UNION ALL TABLE replaced) AS clocks LEFT JOIN content USING (source, record_id)"""

# A listing that began at $2 says that these changed. It is kept even where they are outdated already, since a read that
# began before it may still be on its way.
MARK_OUTDATED = f"""
WITH locked AS MATERIALIZED (
    SELECT source, record_id FROM freshgate.clocks
    JOIN json_to_recordset($3::json) AS line (source text, record_id text) USING (source, record_id)
    WHERE workspace = $1 ORDER BY source, record_id FOR UPDATE OF clocks
), clocks AS (
    UPDATE freshgate.clocks SET outdated_at = $2, {_CHANGED} FROM locked
    WHERE workspace = $1 AND (clocks.source, clocks.record_id) = (locked.source, locked.record_id)
    AND content_hash IS NOT NULL AND confirmed_at <= $2 AND coalesce(outdated_at < $2, true)
    RETURNING clocks.*
)
SELECT {CLOCK}, NULL, NULL, NULL, NULL, NULL, NULL, {_WAKE} FROM clocks"""

# The one that locks in no order: should it and a write wait for each other, Postgres ends one, which is tried again.
PURGE_SOURCE = f"""
WITH purged AS (
    UPDATE freshgate.clocks
    SET confirmed_at = greatest(confirmed_at, freshgate.now()), content_hash = NULL, access_hash = NULL,
        spec_hash = NULL, {_CHANGED}
    WHERE workspace = $1 AND source = $2 AND content_hash IS NOT NULL
), erased AS (
    DELETE FROM freshgate.objects WHERE workspace = $1 AND source = $2
), forgotten AS (
    DELETE FROM freshgate.sources WHERE workspace = $1 AND name = $2
)
SELECT {_WAKE}"""

PURGE_TOMBSTONES = """
WITH purged AS (
    DELETE FROM freshgate.clocks
    WHERE workspace = $1 AND content_hash IS NULL AND confirmed_at < freshgate.now() - $2::double precision
    RETURNING changed_in
), expired AS (
    DELETE FROM freshgate.leases WHERE workspace = $1 AND expires_at < freshgate.now()
), newest AS (
    SELECT changed_in FROM purged ORDER BY changed_in DESC LIMIT 1
)
UPDATE freshgate.workspaces
SET purged_in = pg_current_xact_id(), purged_through = greatest(purged_through, newest.changed_in)
FROM newest WHERE id = $1"""

# --- leases ------------------------------------------------------------------------------------------------------

CLAIM = """
INSERT INTO freshgate.leases AS lease (workspace, name, holder, token, expires_at)
SELECT $1, name, $2, nextval('freshgate.tokens'), freshgate.now() + $4
FROM (SELECT DISTINCT name FROM json_array_elements_text($3::json) AS wanted (name) ORDER BY name) AS wanted
ON CONFLICT (workspace, name) DO UPDATE
SET holder = excluded.holder, token = nextval('freshgate.tokens'), expires_at = excluded.expires_at
WHERE lease.expires_at <= freshgate.now()
RETURNING name, token"""

_OURS = """
WITH ours AS MATERIALIZED (
    SELECT name FROM freshgate.leases JOIN json_to_recordset($2::json) AS lease (name text, token bigint)
    USING (name, token) WHERE workspace = $1 ORDER BY name FOR UPDATE OF leases
)"""

RENEW = f"""{_OURS}
UPDATE freshgate.leases SET expires_at = freshgate.now() + $3 FROM ours
WHERE workspace = $1 AND leases.name = ours.name RETURNING leases.name, token"""

RELEASE = f"""{_OURS}
DELETE FROM freshgate.leases USING ours WHERE workspace = $1 AND leases.name = ours.name"""

# --- sources and revisions ---------------------------------------------------------------------------------------

SOURCE_STATES = """
SELECT name, spec_hash, complete, last_list, last_sweep, last_success, last_error, last_error_at
FROM freshgate.sources WHERE workspace = $1"""

SAVE_SOURCE_STATE = """
INSERT INTO freshgate.sources
(workspace, name, spec_hash, complete, last_list, last_sweep, last_success, last_error, last_error_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (workspace, name) DO UPDATE
SET spec_hash = excluded.spec_hash, complete = excluded.complete, last_list = excluded.last_list,
    last_sweep = excluded.last_sweep, last_success = excluded.last_success, last_error = excluded.last_error,
    last_error_at = excluded.last_error_at"""

HIGHEST_REVISION = "SELECT revision_uid, revision_counter FROM freshgate.workspaces WHERE id = $1"

# Counters order the revisions of one Workspace; stamps tell a Workspace from the one of the same name before it.
ADMIT_REVISION = f"""
UPDATE freshgate.workspaces SET revision_uid = $2, revision_counter = $3, revision_stamp = $4
WHERE id = $1 AND CASE
    WHEN revision_uid IS NULL THEN true
    WHEN revision_uid = $2 THEN (revision_counter, revision_stamp) < ($3, $4)
    ELSE revision_stamp < $4
END
RETURNING {_WAKE}"""
