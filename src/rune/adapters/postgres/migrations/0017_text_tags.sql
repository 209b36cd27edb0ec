-- deploy_source: deploys a version with deploy_version, and keeps its text in the same transaction. An existing version
-- keeps its principal, and its text and note unless new ones are given.
-- `expected`: tags, one of which the latest version must have, as the SHA-256 of its text or as its hash; `*`: any
-- version, an empty text: no version; NULL: no condition. A version that already has this content, and this text if one is
-- given, also meets it, unless `expected` demands that there is none. RETURNS what deploy_version returns; the tag of a
-- failed condition is that of the text, or the hash of a version without a text.
CREATE OR REPLACE FUNCTION deploy_source(
    the_workflow text, the_hash text, the_definition bytea, the_name text, the_alias text, moment bigint,
    the_principal text, the_note text, the_media_type text, the_data bytea, expected text[]
) RETURNS TABLE (number integer, change text, tag text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known record;
    deployed record;
BEGIN
    -- the locks of deploy_version, in its order
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(the_hash, 2));
    PERFORM pg_advisory_xact_lock(hashtextextended(the_workflow, 3));
    SELECT v.hash, encode(sha256(s.data), 'hex') AS text_tag INTO known FROM workflow AS w
    JOIN alias AS a ON a.workflow = w.id AND a.name = 'latest'
    JOIN version AS v ON v.workflow = w.id AND v.number = a.number
    LEFT JOIN version_source AS s ON s.workflow = v.workflow AND s.number = v.number
    WHERE w.id = the_workflow AND w.hidden_at IS NULL;
    IF NOT meets_expected(
        coalesce(known.hash, ''), expected,
        coalesce(known.hash = the_hash AND (the_data IS NULL OR known.text_tag = encode(sha256(the_data), 'hex')), false)
    ) AND NOT coalesce(known.text_tag = ANY (expected), false) THEN
        RETURN QUERY SELECT 0, 'changed', coalesce(known.text_tag, known.hash, '');
        RETURN;
    END IF;
    SELECT d.number, d.change, d.tag INTO deployed
    FROM deploy_version(the_workflow, the_hash, the_definition, the_name, the_alias, moment, NULL) AS d;
    INSERT INTO version_source AS s (workflow, number, principal, note, media_type, data)
    VALUES (the_workflow, deployed.number, the_principal, the_note, the_media_type, the_data)
    ON CONFLICT (workflow, number) DO UPDATE SET
        note = CASE excluded.note WHEN '' THEN s.note ELSE excluded.note END,
        media_type = coalesce(excluded.media_type, s.media_type),
        data = coalesce(excluded.data, s.data);
    RETURN QUERY SELECT deployed.number, deployed.change, deployed.tag;
END
$$;
