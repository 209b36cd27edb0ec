-- Version 3: API keys, grants of credentials (`whom` is a JSON list of principals), and the append-only audit log.

CREATE TABLE api_key (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    digest     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at    INTEGER
) WITHOUT ROWID;

CREATE TABLE credential_grant (
    credential TEXT PRIMARY KEY,
    whom       TEXT NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER credential_grant_goes AFTER DELETE ON credential BEGIN
    DELETE FROM credential_grant WHERE credential = old.id;
END;

CREATE TABLE log (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    id      TEXT NOT NULL UNIQUE,
    at      INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    details TEXT NOT NULL,
    outcome TEXT NOT NULL
);
CREATE INDEX log_target ON log (target);

CREATE TRIGGER log_stays BEFORE UPDATE ON log BEGIN
    SELECT RAISE(ABORT, 'the log is only added to');
END;
CREATE TRIGGER log_keeps BEFORE DELETE ON log BEGIN
    SELECT RAISE(ABORT, 'the log is only added to');
END;
