-- Resend tokens whose lease has expired or that were sent and never claimed. Those of a paused execution are sent when
-- it is resumed: it may be paused because it blocks every worker.
-- KEYS     as in store.lua
-- ARGV[4]  each of the layout SWEPT, see constants.py (msgpack)
-- RETURNS  reply with the unclaimed tokens; an execution without state becomes due at once
-- A crash after this: they are swept again after the time that a caller has to send them.
verbs.sweep = function()
  local opened = store.open()
  local unsent = {}
  for _, each in ipairs(cmsgpack.unpack(ARGV[4])) do
    local node, path = each[SWEPT.node], each[SWEPT.path]
    local member, name = ARGV[3] .. '|' .. text(node) .. '|' .. path, path .. '|' .. text(node)
    held[member] = false
    local live = opened and not meta.f and store.get('l' .. name)
    local claim = opened and store.get('c' .. name)
    if live and not live.w and not live.k then
      local runs_out = claim and claim.u or 0
      if runs_out <= now then
        if meta.p then
          store.write('l' .. name).k = true
        else
          store.send(path, node, live)
          unsent[#unsent + 1] = store.unsent(live.t or 1, live.m)
          unsent[#unsent + 1] = member
        end
      else
        held[member] = runs_out - (meta.o or 0)
      end
    end
  end
  if opened then
    store.flush(true)
    in_batches('ZADD', KEYS[5], unsent)
    return store.reply('ok')
  end
  for member in pairs(held) do redis.call('ZREM', KEYS[5], member) end
  -- The state was lost or the execution has ended: the rebuild finds out which.
  redis.call('ZADD', KEYS[4], 'LT', now, ARGV[3])
  return cmsgpack.pack({ 'ok', now, {}, false, false, false })
end
