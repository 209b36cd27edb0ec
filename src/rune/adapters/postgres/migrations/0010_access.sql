-- API keys, grants of credentials, and the audit log.

CREATE TABLE api_key (
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    used_at    bigint,
    id         text COLLATE "C" PRIMARY KEY,
    name       text NOT NULL,
    role       text NOT NULL,
    scopes     text NOT NULL,
    digest     bytea NOT NULL,
    created_by text NOT NULL
);

CREATE TABLE credential_grant (
    credential text COLLATE "C" PRIMARY KEY REFERENCES credential (id) ON DELETE CASCADE,
    whom       text NOT NULL
);

CREATE TABLE log (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      bigint NOT NULL,
    id      text COLLATE "C" NOT NULL UNIQUE,
    actor   text COLLATE "C" NOT NULL,
    action  text COLLATE "C" NOT NULL,
    target  text COLLATE "C" NOT NULL,
    details text NOT NULL,
    outcome text NOT NULL
);
CREATE INDEX log_target ON log (target, number);

CREATE FUNCTION log_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log is only added to';
END
$$;
CREATE TRIGGER log_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON log
FOR EACH STATEMENT EXECUTE FUNCTION log_stays();
