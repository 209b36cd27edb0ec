-- Make decisions true that the journal has.
-- KEYS     as in store.lua
-- ARGV[4]  decisions (msgpack): node, path, at, kind, info, effects
-- RETURNS  reply ok; or FOLD: no state of this incarnation; or BEHIND: one that is behind the journal. Then nothing has
--          changed
-- A crash behind this: what was emitted is in the state but in no queue; the sweeper sends it.
verbs.apply = function()
  local decisions = cmsgpack.unpack(ARGV[4])
  if not store.open(decisions[1][2], decisions[1][1]) then return 'FOLD' end
  for _, decision in ipairs(decisions) do
    if not act.decide(decision) then return 'BEHIND' end
  end
  for _, decision in ipairs(decisions) do
    if decision[4] ~= 'choice' then act.let_go(decision[2], decision[1]) end
  end
  act.let_in()
  store.flush()
  emitted = store.deliver(emitted)
  store.let_go()
  return store.reply('ok')
end
