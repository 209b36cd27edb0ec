-- Executions, facts, claims, dead letters and the execution index.

-- name: accept
-- Write starts; the function documents arguments and verdicts. All or nothing is committed; sent again, it reports
-- starts that were written as known.
SELECT start, verdict, name, answer FROM accept_executions(
    $1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[], $8::text[],
    $9::integer[], $10::bytea[], $11::integer[], $12::boolean[], $13::integer[], $14::text[], $15::integer[],
    $16::text::smallint[], $17::text::integer[], $18::text::integer[], $19::text::bigint[], $20::bytea[], $21::bytea[],
    $22::bigint
)

-- name: accept_limited
-- Write one start unless a limit rejects it; the function documents arguments and verdicts. All or nothing is
-- committed; sent again, it reports a start that was written as known.
SELECT start, verdict, name, answer, pause FROM accept_limited(
    $1::text[], $2::boolean,
    $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::text[], $9::bytea[], $10::text[],
    $11::integer[], $12::bytea[], $13::integer[], $14::boolean[], $15::integer[], $16::text[], $17::integer[],
    $18::text::smallint[], $19::text::integer[], $20::text::integer[], $21::text::bigint[], $22::bytea[], $23::bytea[],
    $24::bigint
)

-- name: accept_with_terms
-- As `accept`, with the terms that the starts are found by.
SELECT start, verdict, name, answer FROM accept_with_terms(
    $1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[], $8::text[],
    $9::integer[], $10::bytea[], $11::integer[], $12::boolean[], $13::integer[], $14::text[], $15::integer[],
    $16::text::smallint[], $17::text::integer[], $18::text::integer[], $19::text::bigint[], $20::bytea[], $21::bytea[],
    $22::bigint, $23::integer[], $24::text[]
)

-- name: accept_limited_with_terms
-- As `accept_limited`, with the terms that the start is found by.
SELECT start, verdict, name, answer, pause FROM accept_limited_with_terms(
    $1::text[], $2::boolean,
    $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::text[], $9::bytea[], $10::text[],
    $11::integer[], $12::bytea[], $13::integer[], $14::boolean[], $15::integer[], $16::text[], $17::integer[],
    $18::text::smallint[], $19::text::integer[], $20::text::integer[], $21::text::bigint[], $22::bytea[], $23::bytea[],
    $24::bigint, $25::integer[], $26::text[]
)

-- name: keyed
-- The execution that the idempotency key $1 was used for. Read-only.
SELECT execution FROM client_key WHERE key = $1

-- name: accepted
-- The records of the existing executions among $1. Read-only.
SELECT e.id, e.accepted FROM execution AS e WHERE e.id = ANY ($1::text[])

-- name: record
-- Write runs of facts and the claims counted since; the function documents arguments and verdicts. Lists of integers
-- are passed as text, which is faster than encoding them one by one. All or nothing is committed; sent again with the
-- same marks, it reports which.
SELECT run, verdict, whole, answer FROM record_facts(
    $1::text[], $2::text::integer[], $3::integer[], $4::text[], $5::bigint[], $6::bytea[], $7::text[],
    $8::text::integer[], $9::text::smallint[], $10::text::integer[], $11::text::integer[], $12::text::bigint[],
    $13::bytea[], $14::bytea[],
    $15::text[], $16::text::integer[], $17::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
    $21::text::integer[], '{}'
)

-- name: record_with_terms
-- As `record`, with the terms that ended executions are found by.
SELECT run, verdict, whole, answer FROM record_with_terms(
    $1::text[], $2::text::integer[], $3::integer[], $4::text[], $5::bigint[], $6::bytea[], $7::text[],
    $8::text::integer[], $9::text::smallint[], $10::text::integer[], $11::text::integer[], $12::text::bigint[],
    $13::bytea[], $14::bytea[],
    $15::text[], $16::text::integer[], $17::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
    $22::integer[], $23::text[], $21::text::integer[], '{}'
)

-- name: record_late
-- As `record_with_terms`, with the runs that record that an execution is late, and when it is.
SELECT run, verdict, whole, answer FROM record_late(
    $1::text[], $2::text::integer[], $3::integer[], $4::text[], $5::bigint[], $6::bytea[], $7::text[],
    $8::text::integer[], $9::text::smallint[], $10::text::integer[], $11::text::integer[], $12::text::bigint[],
    $13::bytea[], $14::bytea[],
    $15::text[], $16::text::integer[], $17::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
    $22::integer[], $23::text[], $21::text::integer[], '{}', $24::integer[], $25::bigint[]
)

-- name: facts
-- Facts of executions $1 after numbers $2, at most $3 rows of each (NULL: all), element by element. Returns the
-- position in the lists, from 1, and the rows in commit order. Read-only.
SELECT g.place, f.seq, f.body, f.late
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS g (id, behind, most, place)
JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = g.id OFFSET 0) AS e ON true
JOIN LATERAL (
    SELECT k.seq, k.body, k.late FROM fact AS k
    WHERE k.execution = e.n AND k.seq > g.behind AND k.kind <> 9 ORDER BY k.seq LIMIT g.most
) AS f ON true
ORDER BY g.place, f.seq

-- name: results
-- Results of tokens: executions $1, nodes $2, paths $3, element by element. Returns the position in the lists, from 1,
-- and the row, for existing results. Read-only.
SELECT g.place, f.body
FROM unnest($1::text[], $2::integer[], $3::bytea[]) WITH ORDINALITY AS g (id, node, path, place)
JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = g.id OFFSET 0) AS e ON true
JOIN LATERAL (
    SELECT r.body FROM fact AS r
    WHERE r.execution = e.n AND r.kind = 1 AND r.node = g.node AND r.path = g.path AND r.number = 0
    OFFSET 0
) AS f ON true

-- name: facts_of_token
-- Results, failed attempts and suspensions of the token of node $2 and path $3 of execution $1, in commit order.
-- Read-only.
SELECT f.body FROM execution AS e JOIN fact AS f ON f.execution = e.n
WHERE e.id = $1 AND f.kind IN (1, 2, 3) AND f.node = $2 AND f.path = $3 AND NOT f.late ORDER BY f.seq

-- name: signal
-- The signal of id $2 of execution $1. Read-only.
SELECT f.body FROM execution AS e JOIN fact AS f ON f.execution = e.n
WHERE e.id = $1 AND f.kind = 7 AND f.node = -1 AND f.path = $2 AND f.number = 0

-- name: count_claim
-- Record a claim of a token (execution $1, node $2, path $3) by server run $4 and fence $5 at $6. Returns how often
-- the token was claimed before, and whether this claim is among those. Idempotent.
WITH e AS (SELECT n FROM execution WHERE id = $1),
noted AS (
    INSERT INTO claim (execution, node, path, incarnation, fence, at)
    SELECT e.n, $2, $3, $4, $5, $6 FROM e ON CONFLICT DO NOTHING
)
SELECT count(*) AS before, coalesce(bool_or(c.incarnation = $4 AND c.fence = $5), false) AS known
FROM e JOIN claim AS c ON c.execution = e.n AND c.node = $2 AND c.path = $3

-- name: last_fact
-- The newest fact of execution $1. Read-only.
SELECT f.body FROM execution AS e JOIN fact AS f ON f.execution = e.n WHERE e.id = $1 ORDER BY f.seq DESC LIMIT 1

-- name: claims
-- How often each token of execution $1 was claimed. Read-only.
SELECT c.node, c.path, count(*) AS count FROM execution AS e JOIN claim AS c ON c.execution = e.n
WHERE e.id = $1 GROUP BY c.node, c.path

-- name: open_claims
-- The tokens of execution $1 that were claimed and have no result, with the time of their first claim. Read-only.
SELECT c.node, c.path, min(c.at) AS at FROM execution AS e JOIN claim AS c ON c.execution = e.n
WHERE e.id = $1 AND NOT EXISTS (
    SELECT FROM fact AS f
    WHERE f.execution = e.n AND f.kind = 1 AND f.node = c.node AND f.path = c.path AND NOT f.late
)
GROUP BY c.node, c.path

-- name: claims_of
-- The number of claims of the token of node $2 and path $3 of execution $1. Read-only.
SELECT count(*) FROM execution AS e JOIN claim AS c ON c.execution = e.n WHERE e.id = $1 AND c.node = $2 AND c.path = $3

-- name: last_claims
-- The tokens of execution $1 that were claimed and have no result, with the time of their last claim. Read-only.
SELECT c.node, c.path, max(c.at) AS at FROM execution AS e JOIN claim AS c ON c.execution = e.n
WHERE e.id = $1 AND NOT EXISTS (
    SELECT FROM fact AS f
    WHERE f.execution = e.n AND f.kind = 1 AND f.node = c.node AND f.path = c.path AND NOT f.late
)
GROUP BY c.node, c.path

-- name: ends_of
-- The terminal rows of those of executions $1 that have ended. Read-only.
SELECT e.id, e.ending FROM execution AS e WHERE e.id = ANY ($1::text[]) AND e.ending IS NOT NULL

-- name: children
-- Children of execution $1 that have not ended and whose end it waits for. Read-only.
SELECT id FROM execution WHERE parent = $1 AND NOT told AND ended_at IS NULL ORDER BY n

-- name: unreported_children
-- At most $1 children that have ended without a report to their parent, or whose parent has ended or was removed.
-- Read-only.
SELECT child.id FROM execution AS child LEFT JOIN execution AS parent ON parent.id = child.parent
WHERE child.parent IS NOT NULL AND NOT child.told
  AND (child.ended_at IS NOT NULL OR parent.id IS NULL OR parent.ended_at IS NOT NULL)
LIMIT $1

-- name: mark_reported
-- Record that the end of execution $1 was reported to its parent. Idempotent.
UPDATE execution SET told = true WHERE id = $1 AND NOT told

-- name: dead_letters
-- At most $2 unresolved dead letters, newest first, after letter $1 unless NULL. Read-only.
SELECT l.execution, l.code, l.at, e.workflow, e.ending
FROM dead_letter AS l JOIN execution AS e ON e.id = l.execution
WHERE l.settled IS NULL AND ($1::text IS NULL OR (l.at, l.execution) <
    (SELECT b.at, b.execution FROM dead_letter AS b WHERE b.execution = $1))
ORDER BY l.at DESC, l.execution DESC LIMIT $2

-- name: resolve_dead_letter
-- Resolve dead letter $1 as $2. Returns a row if it was unresolved.
UPDATE dead_letter SET settled = $2 WHERE execution = $1 AND settled IS NULL RETURNING execution

-- name: running
-- At most $2 executions that have not ended, ordered by id, after id $1. Returns the id and the earliest due time of
-- its tokens without a result, NULL if none has one; the newest row of a token counts. Tokens without a row, which may
-- be ready to run, are not visible here: the caller folds the facts of an execution that waits. Read-only.
SELECT e.id, (
    SELECT min(f.due) FROM fact AS f
    WHERE f.execution = e.n AND f.due IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM fact AS r WHERE r.execution = f.execution AND r.kind = 1 AND r.node = f.node
            AND r.path = f.path AND r.number = 0)
      AND NOT EXISTS (
          SELECT FROM fact AS l WHERE l.execution = f.execution AND l.kind IN (2, 3) AND l.node = f.node
            AND l.path = f.path AND l.seq > f.seq)
) AS due
FROM execution AS e WHERE e.ended_at IS NULL AND e.id > $1 ORDER BY e.id LIMIT $2

-- name: save_definition
-- Store definition $2 under its hash $1 unless it exists. Takes the lock of a start that references it, so that a
-- concurrent removal happens entirely before or after.
WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 2)))
INSERT INTO definition (hash, canonical) SELECT $1, $2 FROM locked ON CONFLICT DO NOTHING

-- name: definition
-- The canonical form of definition $1. Read-only.
SELECT canonical FROM definition WHERE hash = $1

-- name: definition_lock
-- Block starts that reference definitions $1 until the transaction ends. Locks are taken in one order, so that two
-- transactions cannot deadlock.
SELECT count(pg_advisory_xact_lock(k.key))
FROM (SELECT DISTINCT hashtextextended(d.hash, 2) AS key FROM unnest($1::text[]) AS d (hash) ORDER BY key) AS k

-- name: execution
-- The summary of one execution: of its record only the first bytes and the size. Read-only.
SELECT id, workflow, hash, status, at, ended_at, substring(accepted FROM 1 FOR HEAD_BYTES) AS head, octet_length(accepted) AS size, ending
FROM execution WHERE id = $1

-- name: executions
-- At most $2 executions, newest first, after id $1 unless NULL; of definition $3 unless NULL; if $4, those whose end
-- names failed items. Read-only.
SELECT id, workflow, hash, status, at, ended_at, substring(accepted FROM 1 FOR HEAD_BYTES) AS head, octet_length(accepted) AS size, ending
FROM execution
WHERE n < coalesce((SELECT b.n FROM execution AS b WHERE b.id = $1), CASE WHEN $1::text IS NULL THEN 9223372036854775807 END)
  AND ($3::text IS NULL OR hash = $3) AND (NOT $4::boolean OR position('failed_items'::bytea IN ending) > 0)
ORDER BY n DESC LIMIT $2

-- name: executions_of_status
-- As `executions`, with statuses $5. Reads the newest of each status from the index and returns the newest of those.
-- The array, and the status in the order, let the planner choose no index without the status. Read-only.
SELECT e.id, e.workflow, e.hash, e.status, e.at, e.ended_at,
  substring(e.accepted FROM 1 FOR HEAD_BYTES) AS head, octet_length(e.accepted) AS size, e.ending
FROM unnest($5::text[]) AS s (status)
JOIN LATERAL (
    SELECT x.n, x.id, x.workflow, x.hash, x.status, x.at, x.ended_at, x.accepted, x.ending FROM execution AS x
    WHERE x.status = ANY (ARRAY[s.status])
      AND x.n < coalesce((SELECT b.n FROM execution AS b WHERE b.id = $1), CASE WHEN $1::text IS NULL THEN 9223372036854775807 END)
      AND ($3::text IS NULL OR x.hash = $3) AND (NOT $4::boolean OR position('failed_items'::bytea IN x.ending) > 0)
    ORDER BY x.status DESC, x.n DESC LIMIT $2
) AS e ON true
ORDER BY e.n DESC LIMIT $2

-- name: executions_of_workflow
-- As `executions`, of workflow $5 with statuses $6. Reads the newest of each status from the index and returns the
-- newest of those. The array, and the workflow in the order, let the planner choose no index without it. Read-only.
SELECT e.id, e.workflow, e.hash, e.status, e.at, e.ended_at,
  substring(e.accepted FROM 1 FOR HEAD_BYTES) AS head, octet_length(e.accepted) AS size, e.ending
FROM unnest($6::text[]) AS s (status)
JOIN LATERAL (
    SELECT x.n, x.id, x.workflow, x.hash, x.status, x.at, x.ended_at, x.accepted, x.ending FROM execution AS x
    WHERE x.workflow = ANY (ARRAY[$5::text]) AND x.status = s.status
      AND x.n < coalesce((SELECT b.n FROM execution AS b WHERE b.id = $1), CASE WHEN $1::text IS NULL THEN 9223372036854775807 END)
      AND ($3::text IS NULL OR x.hash = $3) AND (NOT $4::boolean OR position('failed_items'::bytea IN x.ending) > 0)
    ORDER BY x.workflow DESC, x.n DESC LIMIT $2
) AS e ON true
ORDER BY e.n DESC LIMIT $2

-- name: record_parts
-- What follows place $2 in the record of execution $1, element by element. Returns the position in the lists, from 1,
-- and the bytes, for existing executions. Read-only.
SELECT g.place, substring(e.accepted FROM g.start) AS part
FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS g (id, start, place)
JOIN LATERAL (SELECT x.accepted FROM execution AS x WHERE x.id = g.id OFFSET 0) AS e ON true

-- name: matching
-- At most $3 ids from $1 up to but excluding $2. Read-only.
SELECT id FROM execution WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3

-- name: write_position
-- A number that grows with every write to the server. Read-only.
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS written

-- name: require_durable_commits
-- Let commits of this connection wait until they are on disk. A server that is configured to wait for more, such as
-- replicas, keeps doing so.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
