-- point_alias: lets an alias point at a version. Moving `latest` shows a hidden workflow again.
-- RETURNS what became of it: moved or none; unknown if there is no such version; hidden if the workflow is out of
-- sight. A crash here leaves nothing of it, or all of it; sent again it finds what it has done.
CREATE FUNCTION point_alias(the_workflow text, the_alias text, the_number integer, moment bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    moved integer;
    shown integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(the_workflow, 3));
    IF NOT EXISTS (SELECT FROM version AS v WHERE v.workflow = the_workflow AND v.number = the_number) THEN
        RETURN 'unknown';
    END IF;
    IF the_alias <> 'latest'
        AND EXISTS (SELECT FROM workflow AS w WHERE w.id = the_workflow AND w.hidden_at IS NOT NULL) THEN
        RETURN 'hidden';
    END IF;
    INSERT INTO alias (workflow, name, number, at) VALUES (the_workflow, the_alias, the_number, moment)
    ON CONFLICT (workflow, name) DO UPDATE SET number = excluded.number, at = excluded.at
    WHERE alias.number <> excluded.number;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF the_alias = 'latest' THEN
        UPDATE workflow SET hidden_at = NULL WHERE id = the_workflow AND hidden_at IS NOT NULL;
        GET DIAGNOSTICS shown = ROW_COUNT;
    END IF;
    RETURN CASE WHEN moved + shown > 0 THEN 'moved' ELSE 'none' END;
END
$$;
