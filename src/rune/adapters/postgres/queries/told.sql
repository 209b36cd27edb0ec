-- told: the parent of execution $1 knows of its end. Twice is once.
UPDATE execution SET told = true WHERE id = $1 AND NOT told
