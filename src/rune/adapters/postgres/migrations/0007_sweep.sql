-- sweep_removed: removes rows that are left of executions that are off the list, at most `piece` of each kind and
-- execution. The note of one of which nothing is left goes, unless something may still be written for it: then it is
-- looked at again later.
-- ARGUMENTS: the numbers of the notes; now, late and many as in remove_executions.
-- RETURNS one row: facts and blobs that are gone. A crash here leaves the notes, and the next sweep goes on from them.
CREATE FUNCTION sweep_removed(ns bigint[], now bigint, late bigint, piece integer, blob_piece integer)
RETURNS TABLE (facts bigint, blobs bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    note record;
    some bigint;
    most boolean;
BEGIN
    facts := 0;
    blobs := 0;
    FOR note IN SELECT r.* FROM removed AS r WHERE r.n = ANY (ns) ORDER BY r.n FOR UPDATE LOOP
        DELETE FROM fact WHERE ctid = ANY (ARRAY(
            SELECT f.ctid FROM fact AS f WHERE f.execution = note.n LIMIT piece));
        GET DIAGNOSTICS some = ROW_COUNT;
        facts := facts + some;
        most := some = piece;
        DELETE FROM claim WHERE ctid = ANY (ARRAY(
            SELECT c.ctid FROM claim AS c WHERE c.execution = note.n LIMIT piece));
        GET DIAGNOSTICS some = ROW_COUNT;
        most := most OR some = piece;
        -- A new execution may have been given the same id: the blobs are now its own.
        DELETE FROM blob WHERE ctid = ANY (ARRAY(
            SELECT b.ctid FROM blob AS b WHERE b.execution = note.id
              AND NOT EXISTS (SELECT FROM execution AS e WHERE e.id = note.id) LIMIT blob_piece));
        GET DIAGNOSTICS some = ROW_COUNT;
        blobs := blobs + some;
        most := most OR some = blob_piece;
        IF most THEN
            CONTINUE;
        END IF;
        IF now - note.ended_at < late THEN
            UPDATE removed SET until = now + late WHERE n = note.n;
        ELSE
            DELETE FROM removed WHERE n = note.n;
        END IF;
    END LOOP;
    RETURN NEXT;
END
$$;
