-- The workflows that a version may start as children; none: all.
ALTER TABLE version_source ADD COLUMN scopes text[] COLLATE "C" NOT NULL DEFAULT '{}';

-- deploy_source: as before, and keeps the scopes of the version. Those of an existing version are added to: none, before
-- or now, are all workflows. The function without scopes deploys with none, for processes of the previous release.
CREATE FUNCTION deploy_source(
    the_workflow text, the_hash text, the_definition bytea, the_name text, the_alias text, moment bigint,
    the_principal text, the_note text, the_media_type text, the_data bytea, the_scopes text[], expected text[]
) RETURNS TABLE (number integer, change text, tag text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    before   text[];
    deployed record;
BEGIN
    -- the locks of the function without scopes, in its order
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(the_hash, 2));
    PERFORM pg_advisory_xact_lock(hashtextextended(the_workflow, 3));
    SELECT s.scopes INTO before FROM version AS v
    JOIN version_source AS s ON s.workflow = v.workflow AND s.number = v.number
    WHERE v.workflow = the_workflow AND v.hash = the_hash;
    SELECT d.number, d.change, d.tag INTO deployed FROM deploy_source(
        the_workflow, the_hash, the_definition, the_name, the_alias, moment, the_principal, the_note, the_media_type,
        the_data, expected
    ) AS d;
    IF deployed.change = 'created' OR (before <> '{}' AND the_scopes <> '{}') THEN
        UPDATE version_source AS s SET scopes = ARRAY(
            SELECT DISTINCT a.scope FROM unnest(the_scopes || coalesce(before, '{}')) AS a (scope) ORDER BY 1
        ) WHERE s.workflow = the_workflow AND s.number = deployed.number;
    ELSIF deployed.change <> 'changed' AND before <> '{}' THEN
        UPDATE version_source AS s SET scopes = '{}' WHERE s.workflow = the_workflow AND s.number = deployed.number;
    END IF;
    RETURN QUERY SELECT deployed.number, deployed.change, deployed.tag;
END
$$;
