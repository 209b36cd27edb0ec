-- point_alias: points an alias at a version and replaces its weights; `the_number` NULL: keep the version. Moving
-- `latest` restores an archived workflow. `expected`: revisions, one of which the alias must have; `*`: any revision, an
-- empty text: no alias; NULL: no condition. RETURNS the change: moved or none; unknown if a version does not exist;
-- hidden if the workflow is archived; changed with the current revision if the condition failed. All or nothing is
-- committed; sent again it finds its own result, unless `expected` demands that there is no alias.
CREATE FUNCTION point_alias(
    the_workflow text, the_alias text, the_number integer, moment bigint, the_weights jsonb, expected text[]
) RETURNS TABLE (number integer, answer text, tag text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known record;
    found_number integer;
    found_tag text;
    moved integer;
    shown integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(the_workflow, 3));
    SELECT * INTO known FROM alias AS a WHERE a.workflow = the_workflow AND a.name = the_alias;
    found_number := coalesce(the_number, known.number);
    found_tag := coalesce(known.revision::text, '');
    IF found_number IS NULL OR EXISTS (
        SELECT FROM (
            SELECT found_number AS wanted UNION ALL SELECT k::integer FROM jsonb_object_keys(the_weights) AS k
        ) AS named
        WHERE NOT EXISTS (SELECT FROM version AS v WHERE v.workflow = the_workflow AND v.number = named.wanted)
    ) THEN
        RETURN QUERY SELECT found_number, 'unknown', found_tag;
        RETURN;
    END IF;
    IF the_alias <> 'latest'
        AND EXISTS (SELECT FROM workflow AS w WHERE w.id = the_workflow AND w.hidden_at IS NOT NULL) THEN
        RETURN QUERY SELECT found_number, 'hidden', found_tag;
        RETURN;
    END IF;
    IF NOT meets_expected(
        found_tag, expected, coalesce(known.number = found_number AND known.weights = the_weights, false)
    ) THEN
        RETURN QUERY SELECT found_number, 'changed', found_tag;
        RETURN;
    END IF;
    INSERT INTO alias (workflow, name, number, at, weights)
    VALUES (the_workflow, the_alias, found_number, moment, the_weights)
    ON CONFLICT (workflow, name) DO UPDATE
    SET number = excluded.number, at = excluded.at, revision = alias.revision + 1, weights = excluded.weights
    WHERE (alias.number, alias.weights) <> (excluded.number, excluded.weights);
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF the_alias = 'latest' THEN
        UPDATE workflow SET hidden_at = NULL WHERE id = the_workflow AND hidden_at IS NOT NULL;
        GET DIAGNOSTICS shown = ROW_COUNT;
    END IF;
    RETURN QUERY SELECT found_number, CASE WHEN moved + shown > 0 THEN 'moved' ELSE 'none' END, found_tag;
END
$$;
