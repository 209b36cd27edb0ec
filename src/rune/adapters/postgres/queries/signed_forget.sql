-- signed_forget: drops what nobody believes any more at $1. RETURNS how many.
WITH gone AS (DELETE FROM signed_delivery WHERE until < $1 RETURNING 1) SELECT count(*) AS dropped FROM gone
