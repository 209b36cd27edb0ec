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

-- decision: of the layout DECISION; LAYOUTS of constants.py names the positions of this list and of its parts.
function act.decide(decision)
  local node, path = decision[DECISION.node], decision[DECISION.path]
  local kind, info = decision[DECISION.kind], decision[DECISION.info]
  at = decision[DECISION.at]
  if not store.get('s' .. path) then return act.started(path) end
  local live = store.get('l' .. path .. '|' .. text(node))
  if act.is_done(path, node) and (not live or kind ~= 'skip') then return true end
  local given = live and live.j
  local named = kind == 'result' and info[RESULT.signal] or kind == 'attempt' and info[ATTEMPT.signal]
  local superseded = kind == 'attempt' and live and (live.t or 1) > info[ATTEMPT.attempt]
  -- The fact took a signal that this state still holds or gave to another token.
  if named and not superseded and not (given and given[SIGNAL.id] == named) then return false end
  local did
  if kind == 'skip' or kind == 'result' then
    did = act.complete(path, node, live, info, decision[DECISION.effects])
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

-- info: of the layout RESULT: gathers, the split whose items it collects; region, that it cancels; signal, that it took.
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
  if info[RESULT.gathers] >= 0 then act.release(path, info[RESULT.gathers], info[RESULT.status] ~= 'ok') end
  if info[RESULT.region] and info[RESULT.status] == 'ok' then act.cancel_region(path, node, info[RESULT.region]) end
  act.perform(path, effects)
  return true
end

-- Only a join can time out before it has a token.
function act.times_out(path, node, info)
  if info[RESULT.status] ~= 'failed' or info[RESULT.timeout] < 0 then return false end
  return info[RESULT.from] == 'scope' or store.get('b' .. path .. '|' .. text(node))
    or (info[RESULT.gathers] >= 0 and store.get('f' .. path .. '|' .. text(info[RESULT.gathers])))
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

-- info: of the layout ATTEMPT: signal, that it took.
function act.try_again(path, node, live, info)
  if (live.t or 1) ~= info[ATTEMPT.attempt] then return false end
  if live.w then act.stop_waiting(path, node, live) end
  live.t, live.m, live.g, live.f, live.j = info[ATTEMPT.attempt] + 1, nil, nil, nil, nil
  act.wait_until(path, node, live, info[ATTEMPT.due])
  act.end_if_pointless(path, node, live)
  return true
end

function act.end_if_pointless(path, node, live)
  if live.w and act.is_pointless(node, path) then
    act.set_own_timer(path, node, live, false)
    act.wake(path, node, live)
  end
end

-- info: of the layout SUSPENSION.
function act.suspend(path, node, live, info)
  if (live.t or 1) ~= info[SUSPENSION.attempt] or live.m then return false end
  live.m = true
  act.wait_until(path, node, live, info[SUSPENSION.due])
  if info[SUSPENSION.signal] then
    act.wait_for_signal(path, node, live, info[SUSPENSION.signal], info[SUSPENSION.deadline])
  end
  act.end_if_pointless(path, node, live)
  return true
end

-- info: of the layout CHOICE.
function act.choose(path, node, live, info)
  local cancels = info[CHOICE.region]
  for _, each in ipairs(meta.r or {}) do
    if each[REGION.node] == node and each[REGION.path] == path then cancels = false end
  end
  local same = (live.r or '') == info[CHOICE.arrived] and live.p == info[CHOICE.payload]
    and (live.e or false) == info[CHOICE.error]
  if same and not cancels then return false end
  live.r = info[CHOICE.arrived] ~= '' and info[CHOICE.arrived] or nil
  live.p, live.e = info[CHOICE.payload], info[CHOICE.error] or nil
  changed['l' .. path .. '|' .. text(node)] = true
  if cancels then act.cancel_region(path, node, cancels) end
  return true
end
