-- roles: those of the named roles that there are. Changes nothing.
SELECT rolname FROM pg_roles WHERE rolname = ANY ($1::text[])
