-- limits_remove: nothing limits the starts of $1 any more.
DELETE FROM start_limit WHERE subject = $1
