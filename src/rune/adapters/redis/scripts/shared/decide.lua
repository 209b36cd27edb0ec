-- Translation of rune.core.execution.transition: applies a decision. Each function returns false if the state does not
-- know the token: then nothing may be written and the caller has to rebuild the state.

-- Whether the item of a missing scope was ever started, which means that it has ended.
function act.started(path)
  while path ~= '' do
    local around, split, item = act.parent(path)
    if store.get('s' .. around) then
      local name = around .. '|' .. text(split)
      local fan = store.get('f' .. name)
      return fan and (item < fan.x or store.get('A' .. name .. '|' .. item) ~= false)
    end
    path = around
  end
  return false
end

-- decision: node, path, at, kind, info, effects
function act.decide(decision)
  local node, path, kind, info = decision[1], decision[2], decision[4], decision[5]
  at = decision[3]
  if not store.get('s' .. path) then return act.started(path) end
  local live = store.get('l' .. path .. '|' .. text(node))
  if act.is_done(path, node) and (not live or kind ~= 'skip') then return true end
  local given, named = live and live.j, kind == 'result' and info[6] or kind == 'attempt' and info[3]
  local superseded = kind == 'attempt' and live and (live.t or 1) > info[1]
  -- The fact took a signal that this state still holds or gave to another token.
  if named and not superseded and not (given and given[2] == named) then return false end
  local did
  if kind == 'skip' or kind == 'result' then
    did = act.complete(path, node, live, info, decision[6])
  elseif not live then
    return false
  elseif kind == 'attempt' then
    did = act.try_again(path, node, live, info)
  elseif kind == 'suspend' then
    did = act.suspend(path, node, live, info)
  else
    did = act.choose(path, node, live, info)
  end
  if not did then return live ~= false end
  act.propagate_counts(path, true)
  if given and not named and kind ~= 'suspend' and kind ~= 'choice' then act.route_signal(given) end
  return true
end

-- info: status, timeout, from, the split whose items it collects, the region it cancels, the signal it took
function act.complete(path, node, live, info, effects)
  if live then
    act.remove(path, node, live)
  elseif act.times_out(path, node, info) then
    store.disarm('j', node, path, 0)
  else
    return false
  end
  if live and live.f == 'dispatch' then
    act.start_items(path, node)
    return true
  end
  act.set_done(path, node)
  act.drop_barrier(path, node)
  if info[4] >= 0 then act.release(path, info[4], info[1] ~= 'ok') end
  if info[5] and info[1] == 'ok' then act.cancel_region(path, node, info[5]) end
  act.perform(path, effects)
  return true
end

-- Only a join can time out before it has a token.
function act.times_out(path, node, info)
  if info[1] ~= 'failed' or info[2] < 0 then return false end
  return info[3] == 'scope' or store.get('b' .. path .. '|' .. text(node))
    or (info[4] >= 0 and store.get('f' .. path .. '|' .. text(info[4])))
end

function act.remove(path, node, live)
  local scope = store.write('s' .. path)
  store.drop('l' .. path .. '|' .. text(node))
  scope.c = scope.c - 1
  if live.w then act.stop_waiting(path, node, live) else scope.a = scope.a - 1 end
end

function act.stop_waiting(path, node, live)
  act.set_own_timer(path, node, live, false)
  act.stop_waiting_for_signal(path, node, live)
  live.x = nil
end

-- The list is complete, so the marks of the items are deleted. If the aggregator timed out, no further item starts.
function act.release(path, split, given_up)
  local name = path .. '|' .. text(split)
  local fan, fixed = store.write('f' .. name), store.get('F' .. name)
  if not fan.z then
    for chunk = 0, math.floor((fixed.n * fixed.m - 1) / MARKS) do store.drop('k' .. name .. '|' .. chunk) end
  end
  fan.c, fan.z = fan.c or given_up or nil, true
end

-- info: attempt, due, the signal it took
function act.try_again(path, node, live, info)
  if (live.t or 1) ~= info[1] then return false end
  if live.w then act.stop_waiting(path, node, live) end
  live.t, live.m, live.g, live.f, live.j = info[1] + 1, nil, nil, nil, nil
  act.wait_until(path, node, live, info[2])
  act.end_if_pointless(path, node, live)
  return true
end

function act.end_if_pointless(path, node, live)
  if live.w and act.is_pointless(node, path) then
    act.set_own_timer(path, node, live, false)
    act.wake(path, node, live)
  end
end

-- info: attempt, due, signal, deadline
function act.suspend(path, node, live, info)
  if (live.t or 1) ~= info[1] or live.m then return false end
  live.m = true
  act.wait_until(path, node, live, info[2])
  if info[3] then act.wait_for_signal(path, node, live, info[3], info[4]) end
  act.end_if_pointless(path, node, live)
  return true
end

-- info: arrived, payload, error, region
function act.choose(path, node, live, info)
  local cancels = info[4]
  for _, each in ipairs(meta.r or {}) do
    if each[1] == node and each[2] == path then cancels = false end
  end
  local same = (live.r or '') == info[1] and live.p == info[2] and (live.e or false) == info[3]
  if same and not cancels then return false end
  live.r, live.p, live.e = info[1] ~= '' and info[1] or nil, info[2], info[3] or nil
  changed['l' .. path .. '|' .. text(node)] = true
  if cancels then act.cancel_region(path, node, cancels) end
  return true
end
