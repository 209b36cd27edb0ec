-- sweep_removed: removes rows that are left of executions that are off the list, at most `piece` of each kind and
-- execution. The note of one of which nothing is left goes, unless something may still be written for it: then it is
-- looked at again later.
-- ARGUMENTS: the numbers of the notes, and the mark in each: one with another mark is somebody else's at this moment; now, late and many as in remove_executions.
-- RETURNS one row: facts and blobs that are gone. A crash here leaves the notes, and the next sweep goes on from them.
CREATE FUNCTION sweep_removed(
    ns bigint[], marks bigint[], now bigint, late bigint, piece integer, blob_piece integer
)
RETURNS TABLE (facts bigint, blobs bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    note record;
    went bigint;
    more_left boolean;
BEGIN
    facts := 0;
    blobs := 0;
    FOR note IN SELECT r.* FROM removed AS r WHERE r.n = ANY (ns) ORDER BY r.n FOR UPDATE LOOP
        CONTINUE WHEN note.leaving <> marks[array_position(ns, note.n)];
        DELETE FROM fact WHERE ctid = ANY (ARRAY(
            SELECT f.ctid FROM fact AS f WHERE f.execution = note.n LIMIT piece));
        GET DIAGNOSTICS went = ROW_COUNT;
        facts := facts + went;
        more_left := went = piece;
        DELETE FROM claim WHERE ctid = ANY (ARRAY(
            SELECT c.ctid FROM claim AS c WHERE c.execution = note.n LIMIT piece));
        GET DIAGNOSTICS went = ROW_COUNT;
        more_left := more_left OR went = piece;
        -- A new execution may have been given the same id: the blobs are now its own.
        DELETE FROM blob WHERE ctid = ANY (ARRAY(
            SELECT b.ctid FROM blob AS b WHERE b.execution = note.id
              AND NOT EXISTS (SELECT FROM execution AS e WHERE e.id = note.id) LIMIT blob_piece));
        GET DIAGNOSTICS went = ROW_COUNT;
        blobs := blobs + went;
        more_left := more_left OR went = blob_piece;
        IF more_left THEN
            CONTINUE;
        END IF;
        IF now - note.ended_at < late THEN
            UPDATE removed SET until = now + late, leaving = 0 WHERE n = note.n;
        ELSE
            DELETE FROM removed WHERE n = note.n;
        END IF;
    END LOOP;
    RETURN NEXT;
END
$$;
