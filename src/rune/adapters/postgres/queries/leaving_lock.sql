-- leaving_lock: nobody is given id $1 until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))
