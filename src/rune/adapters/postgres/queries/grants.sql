-- grants: who may use credential $1, if anything was said. Changes nothing.
SELECT whom FROM credential_grant WHERE credential = $1
