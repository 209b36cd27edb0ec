-- Pause or resume, as the journal says. Resuming sends what was parked and moves the timeouts by the pause.
-- KEYS     as in store.lua
-- ARGV[4]  at, number, paused (msgpack)
-- RETURNS  reply ok, or FOLD
-- A crash behind this: a resume whose tokens are in no queue; the sweeper sends them.
verbs.control = function()
  if not store.open() then return 'FOLD' end
  local fact = cmsgpack.unpack(ARGV[4])
  if fact[2] <= (meta.k or 0) then return store.reply('ok') end
  meta.k = fact[2]
  changed['!'] = true
  if fact[3] then
    meta.p = meta.p or fact[1]
  else
    if meta.p then
      meta.ps = meta.ps or {}
      meta.ps[#meta.ps + 1] = { meta.p, fact[1] }
    end
    meta.p = nil
    for _, field in ipairs(store.names('l')) do
      local live = cache[field]
      if live.k then
        local path, node = field:match('^l(.-)|(%d+)$')
        store.write(field).k = nil
        store.send(path, tonumber(node), live)
      end
    end
    act.arm_all()
  end
  store.flush()
  emitted = store.deliver(emitted)
  return store.reply('ok')
end
