-- sweep_removed: removes remaining rows of removed executions, at most `piece` of each kind and execution. The row in
-- `removed` of one without remaining rows is deleted, unless facts may still be written for it: then it is swept again
-- later.
-- ARGUMENTS: numbers and marks of rows in `removed`; a row with another mark belongs to another sweep now; now, late and
-- many as in remove_executions.
-- RETURNS one row: the numbers of removed facts and blobs. After a crash the next sweep continues with the same rows.
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
        -- A new execution may use the same id: the blobs belong to it.
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
