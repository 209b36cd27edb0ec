-- point: see the function for arguments and answers.
SELECT point_alias($1, $2, $3, $4) AS answer
