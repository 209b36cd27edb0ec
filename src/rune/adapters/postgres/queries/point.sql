-- point: see the function for arguments and answers.
SELECT number, answer, tag FROM point_alias($1, $2, $3, $4, $5, $6)
