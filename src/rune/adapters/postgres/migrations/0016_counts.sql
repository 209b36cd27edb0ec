-- How many executions ended in each period of five minutes, by workflow and status. bucket: the beginning of a period; the
-- periods from low to before high are counted, without gaps.

CREATE TABLE ended_count (
    bucket   bigint NOT NULL,
    count    bigint NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    status   text COLLATE "C" NOT NULL,
    PRIMARY KEY (bucket, workflow, status)
);
CREATE TABLE ended_count_range (
    one  integer PRIMARY KEY CHECK (one = 1),
    low  bigint NOT NULL,
    high bigint NOT NULL
);
