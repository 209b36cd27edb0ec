-- Install a rebuilt state: pieces are written to a hidden key; the last one makes them the state.
-- KEYS[1] fields  KEYS[2] timers  KEYS[3] listeners  KEYS[4] due executions, KEYS[5] leases of the partition
-- KEYS[6] lease of the rebuild  KEYS[7] hidden fields  KEYS[8] mark that the execution must not be installed from memory
-- ARGV[1] server run  ARGV[2] now in ms, 0: the server's time  ARGV[3] id of the execution  ARGV[4] owner of the lease
-- ARGV[5] its renewal in ms
-- ARGV[6] FIRST, LAST, BOTH or NEITHER; NEW: the whole state of an execution that was just accepted and has none. It is
-- refused if another process has activated the execution, which may have ended or been unloaded since.
-- ARGV[7] fields and values, ARGV[8] due times and timers, ARGV[9] listeners (msgpack)
-- ARGV[10] resend times of tokens, of NEW in ms from now (msgpack)
-- ARGV[11] when the execution is due; empty: never
-- ARGV[12] the record of the execution, which the entries carry; empty: they do not
-- ARGV[13..] tokens to send: position of a stream in KEYS[9..], token, position, token, …
-- RETURNS  1, or 0: the lease is lost, or the state is not NEW
-- A crash between pieces: nothing is visible; the next rebuild starts over.
verbs.install = function()
  local whole = ARGV[6] == 'BOTH' or ARGV[6] == 'NEW'
  local first, last = whole or ARGV[6] == 'FIRST', whole or ARGV[6] == 'LAST'
  if ARGV[6] == 'NEW' then
    if redis.call('EXISTS', KEYS[1], KEYS[6], KEYS[8]) > 0 then return 0 end
  else
    if redis.call('GET', KEYS[6]) ~= ARGV[4] then return 0 end
    redis.call('PEXPIRE', KEYS[6], tonumber(ARGV[5]))
  end
  if first then redis.call('UNLINK', KEYS[7], KEYS[2], KEYS[3]) end
  local function add(command, key, list)
    for i = 1, #list, 500 do redis.call(command, key, unpack(list, i, math.min(i + 499, #list))) end
  end
  local fields = cmsgpack.unpack(ARGV[7])
  for i = 2, #fields, 2 do fields[i] = cmsgpack.pack(fields[i]) end
  add('HSET', KEYS[7], fields)
  add('ZADD', KEYS[2], cmsgpack.unpack(ARGV[8]))
  add('ZADD', KEYS[3], cmsgpack.unpack(ARGV[9]))
  if not last then return 1 end
  local resends = cmsgpack.unpack(ARGV[10])
  if ARGV[6] == 'NEW' and #resends > 0 then
    local clock = store.clock()
    for i = 1, #resends, 2 do resends[i] = string.format('%.0f', clock - clock % SEND_MARKS + resends[i]) end
  end
  add('ZADD', KEYS[5], resends)
  redis.call('RENAME', KEYS[7], KEYS[1])
  redis.call('DEL', KEYS[6])
  if ARGV[6] ~= 'NEW' then redis.call('SET', KEYS[8], '1', 'PX', MARKED) end
  if ARGV[11] ~= '' then
    redis.call('ZADD', KEYS[4], ARGV[11], ARGV[3])
    store.notify_earlier(tonumber(ARGV[11]))
  else
    redis.call('ZREM', KEYS[4], ARGV[3])
  end
  for i = 13, #ARGV, 2 do
    if ARGV[12] == '' then
      redis.call('XADD', KEYS[tonumber(ARGV[i])], '*', 'x', ARGV[3], 't', ARGV[i + 1])
    else
      redis.call('XADD', KEYS[tonumber(ARGV[i])], '*', 'x', ARGV[3], 't', ARGV[i + 1], 'a', ARGV[12])
    end
  end
  return 1
end
