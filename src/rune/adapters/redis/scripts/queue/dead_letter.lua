-- Move an entry that no worker can process from its stream to the dead letters of the partition.
-- KEYS[1] the stream   KEYS[2] dead letters (stream)
-- ARGV[1] unused  ARGV[2] the group  ARGV[3] id of the entry; empty: a worker kept the token, which is in no stream
-- ARGV[4] maximum number of dead letters
-- ARGV[5..] fields and values of the dead letter
-- RETURNS  1, or 0: the entry no longer exists
-- A crash before this: the entry stays pending, and another worker reads and buries it.
verbs.dead_letter = function()
  local known = 1
  if ARGV[3] ~= '' then
    known = redis.call('XDEL', KEYS[1], ARGV[3])
    redis.call('XACK', KEYS[1], ARGV[2], ARGV[3])
  end
  if known == 1 then redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[4], '*', unpack(ARGV, 5)) end
  return known
end
