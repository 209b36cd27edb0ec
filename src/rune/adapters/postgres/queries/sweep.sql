-- sweep: see the function for arguments and answers.
SELECT facts, blobs FROM sweep_removed($1::bigint[], $2::bigint[], $3, $4, $5, $6)
