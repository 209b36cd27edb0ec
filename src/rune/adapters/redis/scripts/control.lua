-- Apply a recorded pause or resume, or that the execution is late. A resume sends parked tokens and moves timeouts by the length of the pause.
-- KEYS     as in store.lua
-- ARGV[4]  of the layout CONTROL, see constants.py (msgpack); number: late if the execution is
-- RETURNS  reply ok, or FOLD
-- A crash after this: the resumed tokens are in no queue; the sweeper sends them.
verbs.control = function()
  if not store.open() then return 'FOLD' end
  local fact = cmsgpack.unpack(ARGV[4])
  if fact[CONTROL.number] == 'late' then
    if not meta.lt then
      meta.lt, timers[LATENESS] = true, false
      changed['!'] = true
      store.flush()
    end
    return store.reply('ok')
  end
  if fact[CONTROL.number] <= (meta.k or 0) then return store.reply('ok') end
  meta.k = fact[CONTROL.number]
  changed['!'] = true
  if fact[CONTROL.paused] then
    meta.p = meta.p or fact[CONTROL.at]
    -- While the execution is paused, the number of claims can only decrease.
    meta.pc = store.count('c')
  else
    if meta.p then
      meta.ps = meta.ps or {}
      meta.ps[#meta.ps + 1] = { meta.p, fact[CONTROL.at] }
    end
    meta.p, meta.pc = nil, nil
    local fixed = store.get('#')
    if meta.f then store.arm('f', -1, '', 0, 0) end
    if fixed.t >= 0 then store.arm('d', -1, '', 0, fixed.s + fixed.t + act.paused_since(fixed.s)) end
    if fixed.l and not meta.lt then timers[LATENESS] = fixed.s + fixed.l end
    act.unpark('0')
  end
  store.flush()
  emitted = store.deliver(emitted)
  return store.reply('ok')
end
