-- deploy: see the function for arguments and answers.
SELECT number, change, tag FROM deploy_version($1, $2, $3, $4, $5, $6, $7)
