-- accept_limited: writes one start unless a limit refuses it; see the function for arguments and answers.
-- A crash here leaves nothing of it, or all of it; sent again it answers one that was written as known.
SELECT start, verdict, name, answer, pause FROM accept_limited(
    $1::text[], $2::boolean,
    $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::text[], $9::bytea[], $10::text[],
    $11::integer[], $12::bytea[], $13::integer[], $14::boolean[], $15::integer[], $16::text[], $17::integer[],
    $18::text::smallint[], $19::text::integer[], $20::text::integer[], $21::text::bigint[], $22::bytea[], $23::bytea[],
    $24::bigint
)
