-- signed: the delivery under which mark $2 came first for trigger $1. Changes nothing.
SELECT delivery FROM signed_delivery WHERE trigger_id = $1 AND mark = $2
