-- accept: writes starts; see the function for arguments and answers.
-- A crash here leaves nothing of it, or all of it; sent again it answers those that were written as known.
SELECT start, verdict, name, answer FROM accept_executions(
    $1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[], $8::text[],
    $9::integer[], $10::bytea[], $11::integer[], $12::boolean[], $13::integer[], $14::text[], $15::integer[],
    $16::text::smallint[], $17::text::integer[], $18::text::integer[], $19::text::bigint[], $20::bytea[], $21::bytea[],
    $22::bigint
)
