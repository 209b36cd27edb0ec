-- record: writes runs of facts and the claims made meanwhile; see the function for arguments and answers. Lists of
-- numbers come as text, which is quicker to make than to encode one by one.
-- A crash here leaves nothing of it, or all of it; sent again with the same marks it tells which.
SELECT run, verdict, whole, answer FROM record_facts(
    $1::text[], $2::text::integer[], $3::integer[], $4::text[], $5::bigint[], $6::bytea[], $7::text[],
    $8::text::integer[], $9::text::smallint[], $10::text::integer[], $11::text::integer[], $12::text::bigint[],
    $13::bytea[], $14::bytea[],
    $15::text[], $16::text::integer[], $17::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[]
)
