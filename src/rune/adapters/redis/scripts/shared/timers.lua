-- Translation of rune.core.execution.control: the effect of a due timer, and which timers a state needs.

-- For how many ms the execution was paused since a given time.
function act.paused_since(since)
  local total = 0
  for _, each in ipairs(meta.ps or {}) do
    total = total + math.max(0, each[PAUSE.ended] - math.max(each[PAUSE.began], since))
  end
  return total
end

function act.races(path)
  if path == '' then return store.get('#').r end
  local around, split = act.parent(path)
  return store.get('F' .. around .. '|' .. text(split)).r
end

-- Timeout of a join and from when it counts; nil if the join is not waiting.
function act.join_waits(path, node)
  if act.is_done(path, node) or store.get('l' .. path .. '|' .. text(node)) then return nil end
  local scope = store.get('s' .. path)
  for _, each in ipairs(act.races(path)) do
    if each[RACE.node] == node then return each[RACE.timeout], scope.o end
  end
  for _, split in ipairs(scope.f or {}) do
    local fixed = store.get('F' .. path .. '|' .. text(split))
    if fixed.g == node then
      local fan = store.get('f' .. path .. '|' .. text(split))
      if not fan.r or fan.r == 0 then return nil end
      return fixed.t, fixed.o == 'latest' and fan.l or fan.f
    end
  end
  local barrier = store.get('b' .. path .. '|' .. text(node))
  if barrier then return barrier.x, barrier.f end
end

-- Fire a timer. An early one is armed again for its exact time; one without its token is dropped.
function act.fire(kind, node, path, number, timer)
  if kind == 'f' then
    store.finish(meta.f or false)
  elseif kind == 'u' then
    if not meta.p then act.unpark(tostring(number)) end
  elseif kind == 'x' then
    act.cancel_some(node, tostring(number))
    act.propagate_up_to(meta.r[node][REGION.path], '')
    act.propagate_counts('', true)
  elseif kind == 'd' then
    act.deadline(timer)
  elseif kind == 'l' then
    local fixed = store.get('#')
    if fixed.l and not meta.lt and fixed.s + fixed.l > at then timers[timer] = fixed.s + fixed.l end
  elseif store.get('s' .. path) then
    if kind == 'j' then act.expire(path, node, timer) else act.resume(kind, path, node, number, timer) end
  end
end

function act.deadline(timer)
  local fixed = store.get('#')
  local due = fixed.s + fixed.t + act.paused_since(fixed.s)
  if meta.p then return end
  if due > at then timers[timer] = due else act.finish(ARGV[8]) end
end

function act.expire(path, node, timer)
  local timeout, since = act.join_waits(path, node)
  if not since or meta.p then return end
  local due = since + timeout + act.paused_since(since)
  if due > at then
    timers[timer] = due
    return
  end
  local barrier, listed = store.get('b' .. path .. '|' .. text(node)), {}
  if barrier then
    local arrivals = act.arrivals(path, node, barrier)
    table.sort(arrivals, function(a, b) return a[ARRIVAL.edge] < b[ARRIVAL.edge] end)
    for i, each in ipairs(arrivals) do listed[i] = each[ARRIVAL.edge] .. '=' .. (each[ARRIVAL.payload] or 's') end
  end
  store.send(path, node, { p = 's', r = table.concat(listed, ' '), f = 'expire' })
end

function act.resume(kind, path, node, number, timer)
  local live = store.get('l' .. path .. '|' .. text(node))
  if not live or not live.w then return end
  local due = act.wakes_at(live)
  local mine = live.m and kind == 'w' or not live.m and kind == 'r' and (live.t or 1) == number
  if not due or not mine then return end
  if due > at then
    timers[timer] = due
    return
  end
  if not live.d or live.d > at then live.f = 'overdue' end
  act.wake(path, node, live)
  act.propagate_counts(path, true)
end

-- Send parked tokens and arm the timers of the state: a bounded number now, the rest by a timer that is due at once.
function act.unpark(cursor)
  local fields, following = store.scan(cursor)
  for _, field in ipairs(fields) do
    local kind, path, node = field:match('^([lbs])([%d.]*)|?(%d*)$')
    if kind == 'l' then
      act.unpark_token(path, tonumber(node), cache[field], field)
    elseif kind == 'b' and store.get('s' .. path) then
      act.arm_join(path, tonumber(node))
    elseif kind == 's' then
      act.arm_scope(path, cache[field])
    end
  end
  if following ~= '0' then store.arm('u', -1, '', following, -1) end
end

function act.unpark_token(path, node, live, field)
  if live.k then
    store.write(field).k = nil
    store.send(path, node, live)
  end
  local due = live.w and act.wakes_at(live)
  if due then act.set_own_timer(path, node, live, due) end
end

function act.arm_scope(path, scope)
  for _, each in ipairs(act.races(path)) do act.arm_join(path, each[RACE.node]) end
  for _, split in ipairs(scope.f or {}) do
    local gathers = store.get('F' .. path .. '|' .. text(split)).g
    if gathers >= 0 then act.arm_join(path, gathers) end
  end
end

function act.arm_join(path, node)
  local timeout, since = act.join_waits(path, node)
  if since and timeout >= 0 then store.arm('j', node, path, 0, since + timeout + act.paused_since(since)) end
end
