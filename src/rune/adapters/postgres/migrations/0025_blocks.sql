-- Executions that blocked the event loop of a process. mark names the block; the row without a mark says that the
-- execution is in quarantine, and reason why. at: since when the block counts, or the quarantine.
CREATE TABLE loop_block (
    execution text COLLATE "C" NOT NULL,
    mark      text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    reason    text NOT NULL DEFAULT '',
    PRIMARY KEY (execution, mark)
);
