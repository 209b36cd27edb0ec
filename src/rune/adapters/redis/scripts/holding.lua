-- Claims: who has a token in hands, under which lease, and who waits because as many run as may.
function act.member(path, node)
  return ARGV[3] .. '|' .. text(node) .. '|' .. path
end

-- A token is in nobody's hands any longer.
function act.let_go(path, node)
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

-- As many run as may: a token waits until one of them is done. Asking twice is waiting once.
function act.hold_back(path, node, token)
  local waiting = store.get('z') or {}
  for i, each in ipairs(waiting) do
    if each[1] == node and each[2] == path then
      waiting[i] = token
      store.put('z', waiting)
      return
    end
  end
  waiting[#waiting + 1] = token
  store.put('z', waiting)
end

-- A token comes into somebody's hands.
function act.take_place(path, node, claim)
  if claim or not meta.m then return end
  meta.c = meta.c + 1
  changed['!'] = true
  local waiting = store.get('z') or {}
  for i, each in ipairs(waiting) do
    if each[1] == node and each[2] == path then
      table.remove(waiting, i)
      act.keep_waiting(waiting)
      return
    end
  end
end

-- Somebody is done: whoever was held back may try again.
function act.let_in()
  local waiting = meta.m and store.get('z')
  if not waiting then return end
  for _ = 1, math.min(meta.m - meta.c, #waiting) do emitted[#emitted + 1] = table.remove(waiting, 1) end
  act.keep_waiting(waiting)
end

function act.keep_waiting(waiting)
  if #waiting > 0 then store.put('z', waiting) else store.drop('z') end
end
