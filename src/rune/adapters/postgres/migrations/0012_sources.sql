-- The text that a version was deployed with, by whom, and a note. Versions of earlier schemas have no row.
CREATE TABLE version_source (
    number     integer NOT NULL,
    workflow   text COLLATE "C" NOT NULL,
    principal  text,
    note       text NOT NULL,
    media_type text,
    data       bytea,
    PRIMARY KEY (workflow, number)
);

-- deploy_source: deploy_version, and keeps the text of the version in the same transaction. An existing version keeps its
-- principal, and its text and note unless new ones are given. RETURNS what deploy_version returns.
CREATE FUNCTION deploy_source(
    the_workflow text, the_hash text, the_definition bytea, the_name text, the_alias text, moment bigint,
    the_principal text, the_note text, the_media_type text, the_data bytea, expected text[]
) RETURNS TABLE (number integer, change text, tag text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    deployed record;
BEGIN
    SELECT d.number, d.change, d.tag INTO deployed
    FROM deploy_version(the_workflow, the_hash, the_definition, the_name, the_alias, moment, expected) AS d;
    IF deployed.change <> 'changed' THEN
        INSERT INTO version_source AS s (workflow, number, principal, note, media_type, data)
        VALUES (the_workflow, deployed.number, the_principal, the_note, the_media_type, the_data)
        ON CONFLICT (workflow, number) DO UPDATE SET
            note = CASE excluded.note WHEN '' THEN s.note ELSE excluded.note END,
            media_type = coalesce(excluded.media_type, s.media_type),
            data = coalesce(excluded.data, s.data);
    END IF;
    RETURN QUERY SELECT deployed.number, deployed.change, deployed.tag;
END
$$;
