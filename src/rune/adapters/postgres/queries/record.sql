-- record: writes runs of facts and the claims made meanwhile; see the function for arguments and answers.
-- A crash here leaves nothing of it, or all of it; sent again with the same marks it tells which.
SELECT run, verdict, whole, answer FROM record_facts(
    $1::text[], $2::integer[], $3::integer[], $4::text[], $5::bigint[], $6::bytea[], $7::text[],
    $8::integer[], $9::smallint[], $10::integer[], $11::bytea[], $12::integer[], $13::bigint[], $14::bytea[],
    $15::text[], $16::integer[], $17::bytea[], $18::bigint[], $19::bigint[], $20::bigint[]
)
