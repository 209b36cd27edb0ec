-- Start limits and their counters. The level of a token bucket is in fractions of a start: one start is `period` units,
-- and each ms adds `starts` units.

CREATE TABLE start_limit (
    level     bigint NOT NULL,
    filled_at bigint NOT NULL,
    period    bigint,
    starts    bigint,
    burst     bigint,
    running   bigint,
    subject   text COLLATE "C" PRIMARY KEY,
    limits    text NOT NULL
);

-- Executions started under a concurrency limit. Ended ones are deleted when the next one is counted.
CREATE TABLE limited_start (
    subject   text COLLATE "C" NOT NULL,
    execution text COLLATE "C" NOT NULL,
    PRIMARY KEY (subject, execution)
);

-- accept_limited: writes one start unless a limit rejects it. The arguments after the first two are those of
-- accept_executions, each with one element.
--   subjects   the subjects whose limits apply; those without limits are ignored
--   closed     whether all starts are rejected because a queue is full
-- RETURNS no row if it was written, a row of accept_executions, or
--   waiting    all starts are rejected
--   running    the concurrency limit of `name`
--   rate       the rate limit of `name`; the next start is possible in `pause` ms
-- Limit rows are locked first, in the order of their names, and never while a lock of accept_executions is held. A
-- transaction that waits for a row sees what the previous one has written. An earlier start with the same key or id is
-- looked up under the lock: it is returned and not counted again.
-- All or nothing is committed.
CREATE FUNCTION accept_limited(
    subjects text[], closed boolean,
    ids text[], workflows text[], hashes text[], ats bigint[], accepteds bytea[], keys text[], digests bytea[],
    parents text[], parent_nodes integer[], parent_paths bytea[], parent_attempts integer[], defined boolean[], needing integer[], others text[], starts integer[], kinds smallint[],
    nodes integer[], numbers integer[], dues bigint[], paths bytea[], bodies bytea[], patience bigint
) RETURNS TABLE (start integer, verdict text, name text, answer bytea, pause bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    moment bigint;
    known  boolean;
    found_running bigint;
    held   record;
BEGIN
    PERFORM FROM start_limit AS l WHERE l.subject = ANY (subjects) ORDER BY l.subject FOR UPDATE;
    moment := extract(epoch FROM clock_timestamp()) * 1000;
    known := EXISTS (SELECT FROM execution AS e WHERE e.id = ids[1]) OR EXISTS (
        SELECT FROM client_key AS c WHERE c.key = keys[1] AND (c.expires IS NULL OR c.expires > ats[1])
    );
    IF closed AND NOT known THEN
        RETURN QUERY SELECT 1, 'waiting'::text, ''::text, NULL::bytea, NULL::bigint;
        RETURN;
    END IF;

    IF NOT known THEN
        FOR held IN
            SELECT l.subject, l.running, l.period, l.starts AS adds,
                least(l.burst * l.period, l.level + greatest(0, moment - l.filled_at) * l.starts) AS level
            FROM start_limit AS l WHERE l.subject = ANY (subjects) ORDER BY l.subject
        LOOP
            IF held.running IS NOT NULL AND held.subject LIKE 'workflow:%' THEN
                SELECT count(*) INTO found_running FROM (
                    SELECT FROM execution AS e
                    WHERE e.workflow = substr(held.subject, 10) AND e.status IN ('running', 'paused')
                    LIMIT held.running
                ) AS r;
            ELSIF held.running IS NOT NULL THEN
                DELETE FROM limited_start AS s WHERE s.subject = held.subject AND NOT EXISTS (
                    SELECT FROM execution AS e WHERE e.id = s.execution AND e.ended_at IS NULL
                );
                SELECT count(*) INTO found_running FROM limited_start AS s WHERE s.subject = held.subject;
            END IF;
            IF found_running >= held.running THEN
                RETURN QUERY SELECT 1, 'running'::text, held.subject, NULL::bytea, NULL::bigint;
                RETURN;
            END IF;
            IF held.level < held.period THEN
                RETURN QUERY SELECT 1, 'rate'::text, held.subject, NULL::bytea,
                    (held.period - held.level + held.adds - 1) / held.adds;
                RETURN;
            END IF;
        END LOOP;
    END IF;

    RETURN QUERY SELECT a.start, a.verdict, a.name, a.answer, NULL::bigint FROM accept_executions(
        ids, workflows, hashes, ats, accepteds, keys, digests, parents, parent_nodes, parent_paths, parent_attempts,
        defined, needing, others, starts, kinds, nodes, numbers, dues, paths, bodies, patience
    ) AS a;
    IF FOUND OR known THEN
        RETURN;
    END IF;

    UPDATE start_limit AS l SET
        level = least(l.burst * l.period, l.level + greatest(0, moment - l.filled_at) * l.starts) - l.period,
        filled_at = greatest(l.filled_at, moment)
    WHERE l.subject = ANY (subjects) AND l.period IS NOT NULL;
    INSERT INTO limited_start (subject, execution)
    SELECT l.subject, ids[1] FROM start_limit AS l
    WHERE l.subject = ANY (subjects) AND l.running IS NOT NULL AND l.subject LIKE 'key:%'
    ON CONFLICT DO NOTHING;
END
$$;
