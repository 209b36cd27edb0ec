-- Deliver a recorded signal to its longest-waiting listener, or store it if there is none.
-- KEYS     as in store.lua
-- ARGV[4]  of the layout SIGNAL, see constants.py (msgpack); path: or false
-- RETURNS  reply ok, or FOLD
-- A crash after this: the resumed token is in no queue; the sweeper sends it.
verbs.signal = function()
  if not store.open() then return 'FOLD' end
  local fact = cmsgpack.unpack(ARGV[4])
  at = fact[SIGNAL.at]
  if store.get('H' .. fact[SIGNAL.id]) then return store.reply('ok') end
  store.put('H' .. fact[SIGNAL.id], 1)
  if meta.ft and at > now then
    meta.o = (meta.o or 0) + at - now
    changed['!'] = true
    now = at
  end
  act.route_signal(fact)
  store.flush()
  emitted = store.deliver(emitted)
  return store.reply('ok')
end
