-- Version 11: the workflows that a version may start as children, as JSON; none: all.
ALTER TABLE version_source ADD COLUMN scopes TEXT NOT NULL DEFAULT '[]';
