-- Apply recorded decisions of one token, or of several tokens of the execution at once.
-- KEYS     as in store.lua
-- ARGV[4]  decisions of the layout DECISION, see constants.py (msgpack)
-- RETURNS  reply ok; or FOLD: no state of this server run; or BEHIND: the state lacks facts of the journal. FOLD and
--          BEHIND change nothing
-- A crash after this: emitted tokens are in the state but in no queue; the sweeper sends them.
function act.apply(claim)
  local decisions = cmsgpack.unpack(ARGV[4])
  local fields, count = { '!' }, 1
  for i = 1, #decisions do
    local path = decisions[i][DECISION.path]
    local name = path .. '|' .. text(decisions[i][DECISION.node])
    fields[count + 1], fields[count + 2] = 's' .. path, 'l' .. name
    fields[count + 3], fields[count + 4] = 'c' .. name, 'b' .. name
    count = count + 4
  end
  if not store.open(fields) then return 'FOLD' end
  for i = 1, #decisions do
    if not act.decide(decisions[i]) then return 'BEHIND' end
  end
  for i = 1, #decisions do
    local decision = decisions[i]
    if decision[DECISION.kind] ~= 'choice' then act.drop_claim(decision[DECISION.path], decision[DECISION.node]) end
  end
  act.emit_waiting()
  local claimed = claim and act.claim_successor(claim) or false
  store.flush()
  emitted = store.deliver(emitted)
  store.delete_entries(claim and 7 or #ARGV)
  return store.reply('ok', claimed)
end

verbs.apply = function()
  return act.apply(false)
end
