-- Move the resend of tokens that the queue has confirmed to the time after which an unclaimed token counts as lost.
-- KEYS[1]  resend times of the tokens of the partition (zset)
-- ARGV[1]  unused   ARGV[2] now in ms, 0: the server's time
-- ARGV[3..]  each: mark of the resend time, ms since the confirmation, token
-- RETURNS  the number of tokens that no worker had claimed
-- A crash before this: the sweeper sends the tokens once more, which is harmless.
verbs.sent = function()
  local at, moved = store.clock(), 0
  for i = 3, #ARGV, 3 do
    local due = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i + 2]) or 0)
    -- Not the end of a lease, another attempt, or a later token of the same node.
    if due % SEND_MARKS == tonumber(ARGV[i]) and due - UNSENT <= at - tonumber(ARGV[i + 1]) then
      redis.call('ZADD', KEYS[1], whole(at + RESEND), ARGV[i + 2])
      moved = moved + 1
    end
  end
  return moved
end
