-- Install a folded state: pieces are written where no verb looks; the last one makes them the state.
-- KEYS[1] fields  KEYS[2] timers  KEYS[3] listeners  KEYS[4] who is due, KEYS[5] leases of the partition
-- KEYS[6] lease of the fold  KEYS[7] hidden fields
-- ARGV[1] incarnation  ARGV[2] unused  ARGV[3] id of the execution  ARGV[4] who folds  ARGV[5] for how many ms more
-- ARGV[6] FIRST, LAST, BOTH or NEITHER; NEW: all of an execution that was accepted this moment, of which there is nothing
-- ARGV[7] fields and values, ARGV[8] due times and timers, ARGV[9] listeners, ARGV[10] when to look after tokens (msgpack)
-- ARGV[11] when the execution is to be looked at; empty: never
-- ARGV[12..] what is sent in the same act: key of a stream, which is one of KEYS[8..], token, key, token, …
-- RETURNS  1, or 0: the lease is lost, and with it the right to install
-- A crash between pieces: nothing is visible; the next fold begins anew.
verbs.install = function()
  local whole = ARGV[6] == 'BOTH' or ARGV[6] == 'NEW'
  local first, last = whole or ARGV[6] == 'FIRST', whole or ARGV[6] == 'LAST'
  if ARGV[6] == 'NEW' then
    if redis.call('EXISTS', KEYS[1], KEYS[6]) > 0 then return 0 end
  else
    if redis.call('GET', KEYS[6]) ~= ARGV[4] then return 0 end
    redis.call('PEXPIRE', KEYS[6], tonumber(ARGV[5]))
  end
  if first then redis.call('DEL', KEYS[7], KEYS[2], KEYS[3]) end
  local function add(command, key, list)
    for i = 1, #list, 500 do redis.call(command, key, unpack(list, i, math.min(i + 499, #list))) end
  end
  local fields = cmsgpack.unpack(ARGV[7])
  for i = 2, #fields, 2 do fields[i] = cmsgpack.pack(fields[i]) end
  add('HSET', KEYS[7], fields)
  add('ZADD', KEYS[2], cmsgpack.unpack(ARGV[8]))
  add('ZADD', KEYS[3], cmsgpack.unpack(ARGV[9]))
  if not last then return 1 end
  add('ZADD', KEYS[5], cmsgpack.unpack(ARGV[10]))
  redis.call('RENAME', KEYS[7], KEYS[1])
  redis.call('DEL', KEYS[6])
  if ARGV[11] ~= '' then
    redis.call('ZADD', KEYS[4], ARGV[11], ARGV[3])
    store.tell_nearer()
  else
    redis.call('ZREM', KEYS[4], ARGV[3])
  end
  for i = 12, #ARGV, 2 do redis.call('XADD', KEYS[tonumber(ARGV[i])], '*', 'x', ARGV[3], 't', ARGV[i + 1]) end
  return 1
end
