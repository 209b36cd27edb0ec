-- Workflow versions and aliases.

-- name: deploy
-- Deploy a version; the function documents arguments and result.
SELECT number, change, tag FROM deploy_source($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: set_alias
-- Point an alias at a version; the function documents arguments and result.
SELECT number, answer, tag FROM point_alias($1, $2, $3, $4, $5, $6)

-- name: archive
-- Archive workflow $1 at $2. Returns a row if the workflow exists: whether it was not archived yet.
WITH hid AS (
    UPDATE workflow SET hidden_at = $2 WHERE id = $1 AND hidden_at IS NULL RETURNING id
)
SELECT EXISTS (SELECT FROM hid) AS hid FROM workflow WHERE id = $1

-- name: versions
-- The versions of workflow $1, oldest first, with the aliases of each and whether the workflow is archived. $2: only
-- this number; $3: only the version of this alias, with its weights; NULL for all. Read-only.
SELECT v.workflow, v.number, v.hash, v.at,
    ARRAY(SELECT a.name FROM alias AS a WHERE a.workflow = v.workflow AND a.number = v.number ORDER BY a.name)
        AS aliases,
    (SELECT a.weights FROM alias AS a WHERE a.workflow = v.workflow AND a.name = $3) AS weights,
    w.hidden_at IS NOT NULL AS hidden, s.principal, s.note, s.scopes
FROM version AS v JOIN workflow AS w ON w.id = v.workflow
LEFT JOIN version_source AS s ON s.workflow = v.workflow AND s.number = v.number
WHERE v.workflow = $1 AND ($2::bigint IS NULL OR v.number = $2)
  AND ($3::text IS NULL OR v.number = (SELECT a.number FROM alias AS a WHERE a.workflow = $1 AND a.name = $3))
ORDER BY v.number

-- name: version_source
-- The text that version $2 of workflow $1 was deployed with; no row if it has none. Read-only.
SELECT data, media_type FROM version_source WHERE workflow = $1 AND number = $2 AND data IS NOT NULL

-- name: aliases
-- The aliases of workflow $1 by name; $2: only this one, NULL for all. Read-only.
SELECT a.name, a.number, a.revision, a.weights FROM alias AS a
WHERE a.workflow = $1 AND ($2::text IS NULL OR a.name = $2) ORDER BY a.name

-- name: workflows
-- The workflows by id, including archived ones if $1. Read-only.
SELECT w.id, v.name, v.number, w.deployed_at, w.hidden_at IS NOT NULL AS hidden,
    (SELECT max(o.number) FROM version AS o WHERE o.workflow = w.id) AS versions,
    ARRAY(SELECT a.name FROM alias AS a WHERE a.workflow = w.id ORDER BY a.name) AS names,
    ARRAY(SELECT a.number FROM alias AS a WHERE a.workflow = w.id ORDER BY a.name) AS numbers
FROM workflow AS w
JOIN alias AS l ON l.workflow = w.id AND l.name = 'latest'
JOIN version AS v ON v.workflow = w.id AND v.number = l.number
WHERE $1 OR w.hidden_at IS NULL ORDER BY w.id

-- name: next_workflow
-- The next workflow after $1 that has ended executions. Read-only.
SELECT workflow FROM execution WHERE ended_at IS NOT NULL AND workflow > $1 ORDER BY workflow LIMIT 1

-- name: definitions_with_queues
-- At most $1 definitions that name a queue, of the newest running executions, of the newest version of each workflow and
-- of those that aliases name. Read-only.
WITH used AS (
    (SELECT e.hash FROM execution AS e WHERE e.ended_at IS NULL ORDER BY e.id DESC LIMIT 10000)
    UNION
    SELECT v.hash FROM version AS v JOIN workflow AS w ON w.id = v.workflow AND w.hidden_at IS NULL
    WHERE v.number = (SELECT max(n.number) FROM version AS n WHERE n.workflow = v.workflow)
       OR EXISTS (SELECT FROM alias AS a WHERE a.workflow = v.workflow AND a.number = v.number)
)
SELECT d.canonical FROM definition AS d JOIN used AS u ON u.hash = d.hash
WHERE position('"queue":'::bytea IN d.canonical) > 0 ORDER BY d.hash LIMIT $1
