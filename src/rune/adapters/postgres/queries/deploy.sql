-- deploy: see the function for arguments and answers.
SELECT number, change FROM deploy_version($1, $2, $3, $4, $5, $6)
