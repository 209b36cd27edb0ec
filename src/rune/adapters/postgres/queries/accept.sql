-- accept: writes starts; see the function for arguments and answers.
-- A crash here leaves nothing of it, or all of it; sent again it answers those that were written as known.
SELECT start, verdict, name, answer FROM accept_executions(
    $1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[], $8::text[],
    $9::boolean[], $10::integer[], $11::text[], $12::integer[],
    $13::text::smallint[], $14::text::integer[], $15::text::integer[], $16::text::bigint[], $17::bytea[], $18::bytea[],
    $19::bigint
)
