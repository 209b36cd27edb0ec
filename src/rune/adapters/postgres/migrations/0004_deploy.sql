-- meets_expected: whether a tag is among the expected ones. `already`: the current state is the wanted one, as after a
-- repeated request; that also meets the expectation unless the object must not exist yet. Read-only.
CREATE FUNCTION meets_expected(tag text, expected text[], already boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT expected IS NULL OR tag = ANY (expected) OR (tag <> '' AND '*' = ANY (expected))
        OR (already AND '' <> ANY (expected))
$$;

-- deploy_version: stores a definition as a new version of a workflow, or finds the version with the same content.
-- `latest` points at it afterwards, and so does `alias` unless it is NULL; an archived workflow is restored.
-- `expected`: hashes, one of which the latest version must have; `*`: any version, an empty text: no version; NULL:
-- no condition. RETURNS the number and the change: created, moved or none; or changed with the current hash if the
-- condition failed. Deploys of a workflow are serialised, so that numbers have no gaps. All or nothing is committed;
-- sent again it finds its own result, unless `expected` demands that there is no version.
CREATE FUNCTION deploy_version(
    the_workflow text, the_hash text, the_definition bytea, the_name text, the_alias text, moment bigint,
    expected text[]
) RETURNS TABLE (number integer, change text, tag text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    found_number integer;
    created boolean := false;
    moved integer;
    shown boolean;
    found_tag text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(the_hash, 2));
    PERFORM pg_advisory_xact_lock(hashtextextended(the_workflow, 3));
    SELECT v.hash INTO found_tag FROM workflow AS w
    JOIN alias AS a ON a.workflow = w.id AND a.name = 'latest'
    JOIN version AS v ON v.workflow = w.id AND v.number = a.number
    WHERE w.id = the_workflow AND w.hidden_at IS NULL;
    found_tag := coalesce(found_tag, '');
    IF NOT meets_expected(found_tag, expected, found_tag = the_hash) THEN
        RETURN QUERY SELECT 0, 'changed', found_tag;
        RETURN;
    END IF;
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
    ON CONFLICT (workflow, name) DO UPDATE
    SET number = excluded.number, at = excluded.at, revision = alias.revision + 1, weights = excluded.weights
    WHERE (alias.number, alias.weights) <> (excluded.number, excluded.weights);
    GET DIAGNOSTICS moved = ROW_COUNT;

    shown := EXISTS (SELECT FROM workflow AS w WHERE w.id = the_workflow AND w.hidden_at IS NOT NULL);
    INSERT INTO workflow (id, deployed_at) VALUES (the_workflow, moment)
    ON CONFLICT (id) DO UPDATE SET deployed_at = excluded.deployed_at, hidden_at = NULL;

    RETURN QUERY SELECT found_number,
        CASE WHEN created THEN 'created' WHEN shown OR moved > 0 THEN 'moved' ELSE 'none' END, the_hash;
END
$$;
