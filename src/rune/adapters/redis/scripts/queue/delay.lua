-- Move delayed deliveries that are due into their streams.
-- KEYS[1] delayed deliveries (zset by due ms)   KEYS[2..] the streams of the queue, one per lane; last: dead letters
-- ARGV[1] unused  ARGV[2] now in ms, 0: the server's time  ARGV[3] maximum number  ARGV[4] maximum number of dead letters
-- Members: number of the key, a space, number of the message, a space, size of the execution's id, a space, id, token.
-- RETURNS  the number of moved deliveries
-- A crash after this: nothing is lost; each delivery is in one place only.
verbs.delay = function()
  local now = tonumber(ARGV[2])
  if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, tonumber(ARGV[3]))
  for _, member in ipairs(due) do
    local key, size, rest = member:match('^(%d+) %d+ (%d+) (.*)$')
    key, size = tonumber(key), tonumber(size)
    if key and key >= 2 and key < #KEYS then
      redis.call('XADD', KEYS[key], '*', 'x', rest:sub(1, size), 't', rest:sub(size + 1))
    else
      redis.call('XADD', KEYS[#KEYS], 'MAXLEN', ARGV[4], '*', 'code', 'BAD_MESSAGE', 'reason',
        'not a delayed delivery', 'stream', KEYS[2], 'entry', cmsgpack.pack({ 'member', member }))
    end
    redis.call('ZREM', KEYS[1], member)
  end
  return #due
end
