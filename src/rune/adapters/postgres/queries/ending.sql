-- ending: the terminal row of execution $1, NULL while it runs. Changes nothing.
SELECT ending FROM execution WHERE id = $1
