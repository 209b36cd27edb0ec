-- Version 10: how many executions ended in each period of five minutes, by workflow and status. `bucket` is the beginning of a
-- period; the periods from `low` to before `high` are counted, without gaps.
CREATE TABLE ended_count (
    bucket   INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    status   TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (bucket, workflow, status)
) WITHOUT ROWID;
CREATE TABLE ended_count_range (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    low  INTEGER NOT NULL,
    high INTEGER NOT NULL
);
