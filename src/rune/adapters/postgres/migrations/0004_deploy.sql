-- deploy_version: keeps a definition as a new version of a workflow, or finds the version that has the same content.
-- `latest` points at it afterwards, and so does `alias` unless it is NULL; a hidden workflow is shown again.
-- RETURNS the number, and what changed: created, moved or none. One deploy of a workflow at a time: numbers have no
-- gaps. A crash here leaves nothing of it, or all of it; sent again it finds what it has done.
CREATE FUNCTION deploy_version(
    the_workflow text, the_hash text, the_definition bytea, the_name text, the_alias text, moment bigint
) RETURNS TABLE (number integer, change text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    found_number integer;
    created boolean := false;
    moved integer;
    shown boolean;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(the_hash, 2));
    PERFORM pg_advisory_xact_lock(hashtextextended(the_workflow, 3));
    INSERT INTO definition (hash, canonical) VALUES (the_hash, the_definition) ON CONFLICT DO NOTHING;

    SELECT v.number INTO found_number FROM version AS v WHERE v.workflow = the_workflow AND v.hash = the_hash;
    IF found_number IS NULL THEN
        created := true;
        SELECT coalesce(max(v.number), 0) + 1 INTO found_number FROM version AS v WHERE v.workflow = the_workflow;
        INSERT INTO version (workflow, number, hash, name, at)
        VALUES (the_workflow, found_number, the_hash, the_name, moment);
    END IF;

    INSERT INTO alias (workflow, name, number, at)
    SELECT the_workflow, a.name, found_number, moment
    FROM (SELECT 'latest' AS name UNION SELECT the_alias WHERE the_alias IS NOT NULL) AS a
    ON CONFLICT (workflow, name) DO UPDATE SET number = excluded.number, at = excluded.at
    WHERE alias.number <> excluded.number;
    GET DIAGNOSTICS moved = ROW_COUNT;

    shown := EXISTS (SELECT FROM workflow AS w WHERE w.id = the_workflow AND w.hidden_at IS NOT NULL);
    INSERT INTO workflow (id, deployed_at) VALUES (the_workflow, moment)
    ON CONFLICT (id) DO UPDATE SET deployed_at = excluded.deployed_at, hidden_at = NULL;

    RETURN QUERY SELECT found_number,
        CASE WHEN created THEN 'created' WHEN shown OR moved > 0 THEN 'moved' ELSE 'none' END;
END
$$;
