-- Release the lease of a rebuild that failed.
-- KEYS[6] the lease  KEYS[7] what was written so far
-- ARGV[4] owner of the lease
-- RETURNS  1
-- A crash before this: the lease expires.
verbs.release = function()
  if redis.call('GET', KEYS[6]) == ARGV[4] then redis.call('DEL', KEYS[6], KEYS[7]) end
  return 1
end
