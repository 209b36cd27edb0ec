-- One row, written at the first start so that copies of an empty database differ: the id of this journal, which the state
-- store repeats, and the number of partitions of the state.
CREATE TABLE cluster (
    journal    uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    partitions integer CHECK (partitions > 0)
);
CREATE UNIQUE INDEX cluster_one_row ON cluster ((true));
