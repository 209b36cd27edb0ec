-- Creates a database for Rune with its owner and a user for each role. Run by an administrator; may be repeated:
--
--     psql -X -v owner_password=… -v worker_password=… -v scheduler_password=… -v api_password=… -f roles.sql
--
-- `-v database=…` sets the name of the database, default `rune`. The users have no rights in it until the owner runs
-- `rune migrate --roles`, which also grants rights on the tables of later versions.

\set ON_ERROR_STOP on
\if :{?database}
\else
\set database rune
\endif

SELECT format('CREATE ROLE %I', name)
FROM unnest(ARRAY['rune_owner', 'rune_worker', 'rune_scheduler', 'rune_api']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec

ALTER ROLE rune_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'owner_password';
ALTER ROLE rune_worker LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'worker_password';
ALTER ROLE rune_scheduler LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'scheduler_password';
ALTER ROLE rune_api LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'api_password';

SELECT format('CREATE DATABASE %I OWNER rune_owner TEMPLATE template0 ENCODING ''UTF8''', :'database')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec

REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO rune_worker, rune_scheduler, rune_api;

\connect :"database"
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT ALL ON SCHEMA public TO rune_owner;
GRANT USAGE ON SCHEMA public TO rune_worker, rune_scheduler, rune_api;
