-- remove: see the function for arguments and answers.
SELECT gone, freed, facts, blobs FROM remove_executions($1::bigint[], $2::text[], $3, $4, $5, $6, $7, $8)
