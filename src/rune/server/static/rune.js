// The status page. Everything that comes from outside is shown as text.
"use strict";

const API = "/api/v1";
const ENDED = new Set(["completed", "failed", "halted", "cancelled"]);
const MOST_ROWS = 50;
const MOST_EVENTS = 200;
const AGAIN_MS = 1000;
const KEY = "rune-key"; // of this tab, until it is closed
const shown = new Map();
let chosen = null;
let choosing = 0;
let following = null;
let asking = null;

const at = (id) => document.getElementById(id);

function made(tag, text, data) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  Object.assign(element.dataset, data || {});
  return element;
}

// Asks with the key of this tab. Where there is none, or it no longer holds, whoever looks is asked for one.
async function send(path, options) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const response = await fetch(API + path, { ...options, headers });
    if (response.status !== 401) return response;
    if (sessionStorage.getItem(KEY) === key) await newKey(key !== null);
  }
}

// One question for all who were refused meanwhile.
function newKey(refused) {
  asking ||= new Promise((resolve) => {
    sessionStorage.removeItem(KEY);
    at("key-said").textContent = refused ? "This key does not hold." : "";
    at("login").hidden = false;
    at("key").focus();
    at("login").addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, at("key").value.trim());
      at("key").value = "";
      at("login").hidden = true;
      asking = null;
      resolve();
    }, { once: true });
  });
  return asking;
}

async function ask(method, path, body) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await send(path, options);
  const text = await response.text();
  const answer = text ? JSON.parse(text) : null;
  if (!response.ok) throw new Error(answer && answer.detail ? answer.detail : `status ${response.status}`);
  return answer;
}

// A stream of events that carries the key, which an EventSource cannot. It comes back with the last id that it has seen.
function listen(path, hear, told = () => {}) {
  const leaving = new AbortController();
  const gone = () => leaving.signal.aborted;
  let last = null;
  async function once() {
    const headers = last === null ? {} : { "Last-Event-ID": last };
    const response = await send(path, { headers, signal: leaving.signal });
    if (response.status === 204) return leaving.abort();
    if (!response.ok) throw new Error(`status ${response.status}`);
    told(true);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return undefined;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) take(block);
    }
  }
  function take(block) {
    const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
    if (fields.id !== undefined) last = fields.id;
    if (fields.data !== undefined && !gone()) hear(fields.event || "message", JSON.parse(fields.data));
  }
  (async () => {
    while (!gone()) {
      await once().catch(() => {});
      if (gone()) return;
      told(false);
      await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS); });
    }
  })();
  return { close: () => leaving.abort() };
}

function drawRows() {
  const wanted = at("status").value;
  const rows = [...shown.values()]
    .filter((each) => !wanted || each.status === wanted)
    .sort((a, b) => (a.started_at < b.started_at ? 1 : -1))
    .slice(0, MOST_ROWS);
  at("none").hidden = rows.length > 0;
  place(rows);
}

// Rows that are there stay where they are: one that is taken out and put back loses the focus.
function place(rows) {
  const body = at("executions");
  const known = new Map([...body.children].map((line) => [line.dataset.execution, line]));
  for (const each of rows) {
    if (!known.has(each.execution_id)) known.set(each.execution_id, row(each));
  }
  const wanted = rows.map((each) => known.get(each.execution_id));
  const kept = new Set(wanted);
  for (const line of [...body.children]) if (!kept.has(line)) line.remove();
  wanted.forEach((line, index) => {
    if (body.children[index] !== line) body.insertBefore(line, body.children[index] || null);
    fill(line, rows[index]);
  });
}

function row(each) {
  const line = made("tr", undefined, { execution: each.execution_id });
  const open = made("button", each.execution_id);
  open.type = "button";
  open.addEventListener("click", () => choose(each.execution_id).catch(tell));
  const first = made("td");
  first.append(open);
  const status = made("td");
  const badge = made("span");
  badge.className = "status";
  status.append(badge);
  line.append(first, made("td", each.workflow_id), status, made("td", each.started_at.replace("T", " ").slice(0, 19)));
  return line;
}

function fill(line, each) {
  const badge = line.querySelector(".status");
  badge.textContent = each.status;
  badge.dataset.status = each.status;
  const open = line.querySelector("button");
  if (chosen !== null && each.execution_id === chosen.execution_id) open.setAttribute("aria-current", "true");
  else open.removeAttribute("aria-current");
}

function tell(error) {
  at("said").textContent = error.message;
}

async function loadRows() {
  const wanted = at("status").value;
  const page = await ask("GET", `/executions?limit=${MOST_ROWS}${wanted ? `&status=${wanted}` : ""}`);
  shown.clear();
  for (const each of page.executions) shown.set(each.execution_id, each);
  drawRows();
}

function followAll() {
  const link = at("link");
  listen("/events", (kind, each) => {
    if (kind === "missed") loadRows().catch(tell);
    if (kind !== "execution") return;
    shown.set(each.execution_id, each);
    if (shown.size > 4 * MOST_ROWS) shown.delete(shown.keys().next().value);
    drawRows();
  }, (live) => {
    link.dataset.state = live ? "live" : "lost";
    link.textContent = live ? "live" : "connecting again";
    if (live) loadRows().catch(tell);
  });
}

async function choose(id) {
  const turn = (choosing += 1);
  const found = await ask("GET", `/executions/${id}`);
  const definition = await ask("GET", `/definitions/${found.hash}`);
  if (turn !== choosing) return; // another one was chosen meanwhile
  if (following) following.close();
  chosen = found;
  history.replaceState(null, "", `#${id}`);
  at("one").hidden = false;
  at("one-title").textContent = `${chosen.workflow_id} ${id}`;
  at("events").replaceChildren();
  at("output").textContent = "";
  at("waiting").replaceChildren();
  at("nodes").replaceChildren(...definition.nodes.map(nodeBox));
  drawStatus();
  drawRows();
  follow(id);
}

function nodeBox(node) {
  const box = made("li", node.name || node.id, { node: node.id, status: "pending" });
  box.append(made("small", node.type));
  return box;
}

function drawStatus() {
  const badge = at("one-status");
  badge.textContent = chosen.status;
  badge.dataset.status = chosen.status;
  at("one-error").textContent = chosen.error ? `${chosen.error.code}: ${chosen.error.message}` : "";
  const over = ENDED.has(chosen.status);
  for (const button of at("acts").querySelectorAll("button")) {
    const act = button.dataset.act;
    button.hidden = act === "retry" ? !over || chosen.status === "completed" : over
      || (act === "pause" && chosen.status === "paused") || (act === "resume" && chosen.status !== "paused");
  }
}

function paint(node, status, text) {
  const box = at("nodes").querySelector(`[data-node="${CSS.escape(node)}"]`);
  if (!box) return;
  box.dataset.status = status;
  if (text) box.querySelector("small").textContent = text;
}

function follow(id) {
  following = listen(`/executions/${id}/events?view=rollup`, (kind, told) => {
    if (kind === "message") hear(told, id);
    if (kind !== "rollup") return;
    for (const split of told.splits) {
      for (const [node, counts] of Object.entries(split.nodes)) {
        const worst = counts.failed ? "failed" : counts.waiting ? "waiting" : "success";
        paint(node, worst, Object.entries(counts).map(([status, count]) => `${count} ${status}`).join(", "));
      }
    }
  });
}

function hear(event, id) {
  if (chosen.execution_id !== id) return;
  const line = made("li", `${event.at.slice(11, 23)} ${event.kind} ${event.node_id || ""}`);
  line.value = event.number;
  at("events").prepend(line);
  while (at("events").children.length > MOST_EVENTS) at("events").lastChild.remove();
  const [what, status] = event.kind.split(".");
  if (what === "node") {
    paint(event.node_id, status);
    if (status === "waiting") explain().catch(tell);
  } else {
    if (status === "accepted") return;
    refresh(ENDED.has(status)).catch(tell);
  }
}

async function refresh(over) {
  const id = chosen.execution_id;
  const found = await ask("GET", `/executions/${id}`);
  if (chosen.execution_id !== id) return;
  chosen = found;
  drawStatus();
  shown.set(id, found);
  drawRows();
  if (!over) return;
  following.close();
  at("waiting").replaceChildren();
  const page = await ask("GET", `/executions/${id}/nodes?limit=1000`);
  if (chosen.execution_id !== id) return;
  for (const run of page.nodes) if (run.lineage.length === 0) paint(run.node_id, run.status);
  const output = await ask("GET", `/executions/${id}/output`);
  if (chosen.execution_id === id) at("output").textContent = JSON.stringify(output, null, 2);
}

async function explain() {
  const id = chosen.execution_id;
  const found = await ask("GET", `/executions/${id}/explain`);
  if (chosen.execution_id !== id) return;
  at("waiting").replaceChildren(...found.waiting.map((each) => made("li", `${each.node} ${each.reason}`)));
}

at("status").addEventListener("change", () => loadRows().catch(tell));

at("acts").addEventListener("click", async (event) => {
  const act = event.target.dataset.act;
  if (!act || !chosen) return;
  try {
    const answer = await ask("POST", `/executions/${chosen.execution_id}/${act}`, act === "cancel" || act === "retry" ? {} : undefined);
    if (act === "retry") await choose(answer.execution_id);
    else await refresh(false);
  } catch (error) {
    at("one-error").textContent = error.message;
  }
});

at("start").addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = at("said");
  try {
    const input = JSON.parse(at("input").value || "{}");
    const started = await ask("POST", `/workflows/${at("workflow").value}/executions`, { input });
    said.textContent = `Started ${started.execution_id}`;
    await choose(started.execution_id);
  } catch (error) {
    said.textContent = error.message;
  }
});

async function begin() {
  const version = await (await fetch("/version")).json();
  at("version").textContent = version.version;
  const stored = await ask("GET", "/workflows?limit=1000");
  at("workflow").replaceChildren(...stored.workflows.map((each) => {
    const option = made("option", each.name || each.workflow_id);
    option.value = each.workflow_id;
    return option;
  }));
  const hello = stored.workflows.find((each) => each.workflow_id === "hello");
  if (hello) at("workflow").value = "hello";
  followAll();
  if (location.hash.length > 1) await choose(location.hash.slice(1));
}

begin().catch(tell);
