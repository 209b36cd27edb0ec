-- Claims of tokens, their leases, and tokens that wait because of the limit of parallel nodes.
function act.member(path, node)
  return ARGV[3] .. '|' .. text(node) .. '|' .. path
end

-- Drop the claim of a token.
function act.drop_claim(path, node)
  local name = 'c' .. path .. '|' .. text(node)
  held[act.member(path, node)] = false
  local claim = store.get(name)
  if not claim then return end
  store.drop(name)
  if meta.p then
    meta.pc = meta.pc - 1
    changed['!'] = true
  end
  if meta.m then
    meta.c = meta.c - 1
    changed['!'] = true
  end
end

-- Claim the only token that this call emits for the worker whose decisions emit it, as `claim` would. want: of the
-- layout SUCCESSOR. Return false and leave it to a queue if there are other tokens or if `claim` has more to decide: in
-- a paused execution or one with a limit of parallel nodes, for a token that was claimed before or that leads to a lost
-- race.
function act.claim_successor(want)
  local node, path, owner, only = want[SUCCESSOR.node], want[SUCCESSOR.path], want[SUCCESSOR.owner], nil
  if meta.f or meta.p or meta.m then return false end
  for i = 1, #emitted do
    if is_open(emitted[i]) then
      if only then return false end
      only = emitted[i]
    end
  end
  if not only or only[TOKEN.node] ~= node or only[TOKEN.path] ~= path then return false end
  if only[TOKEN.fate] ~= 'run' or only[TOKEN.resumed] then return false end
  local name = 'c' .. path .. '|' .. text(node)
  if store.get(name) or act.is_pointless(node, path) then return false end
  local number = store.moment()
  store.put(name, { n = number, u = now + LEASE, o = owner })
  held[act.member(path, node)] = now + LEASE - (meta.o or 0)
  emitted = {}
  local alone = path == '' and store.get('s').c == 1 and not meta.u and (meta.v or 0) or false
  return { only, number, alone, meta.rb or false }
end

-- Let a token wait until a running one is done, because the limit of parallel nodes is reached. Idempotent.
function act.hold_back(path, node, token)
  held[act.member(path, node)] = now + RESEND - (meta.o or 0)
  local waiting = store.get('z') or {}
  for i, each in ipairs(waiting) do
    if each[TOKEN.node] == node and each[TOKEN.path] == path then
      waiting[i] = token
      store.put('z', waiting)
      return
    end
  end
  waiting[#waiting + 1] = token
  store.put('z', waiting)
end

-- Count a claimed token against the limit of parallel nodes.
function act.count_claim(path, node, claim)
  if claim or not meta.m then return end
  meta.c = meta.c + 1
  changed['!'] = true
  local waiting = store.get('z') or {}
  for i, each in ipairs(waiting) do
    if each[TOKEN.node] == node and each[TOKEN.path] == path then
      table.remove(waiting, i)
      act.store_waiting(waiting)
      return
    end
  end
end

-- Emit waiting tokens for the places that became free.
function act.emit_waiting()
  local waiting = meta.m and store.get('z')
  if not waiting then return end
  for _ = 1, math.min(meta.m - meta.c, #waiting) do emitted[#emitted + 1] = table.remove(waiting, 1) end
  act.store_waiting(waiting)
end

function act.store_waiting(waiting)
  if #waiting > 0 then store.put('z', waiting) else store.drop('z') end
end
