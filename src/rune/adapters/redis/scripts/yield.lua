-- Give up the right to fold, where what was read cannot be folded here.
-- KEYS[6] the lease of the fold  KEYS[7] what was written so far
-- ARGV[4] who had it
-- RETURNS  1
-- A crash before this: the lease runs out.
verbs.yield = function()
  if redis.call('GET', KEYS[6]) == ARGV[4] then redis.call('DEL', KEYS[6], KEYS[7]) end
  return 1
end
