// The status page. All data of the server is inserted as text, never as HTML.
"use strict";

const API = "/api/v1";
const ENDED = new Set(["completed", "failed", "halted", "cancelled"]);
const MAX_ROWS = 50;
const MAX_EVENTS = 200;
const RECONNECT_DELAY_MS = 1000;
const KEY = "rune-key"; // session storage: one tab, until it is closed
const shown = new Map();
let selected = null;
let selectionCount = 0;
let stream = null;
let prompting = null;

const at = (id) => document.getElementById(id);

function create(tag, text, data) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  Object.assign(element.dataset, data || {});
  return element;
}

// Sends a request with the key of this tab. If there is none, or it is invalid, prompts for one and tries again.
async function send(path, options) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const response = await fetch(API + path, { ...options, headers });
    if (response.status !== 401) return response;
    if (sessionStorage.getItem(KEY) === key) await promptForKey(key !== null);
  }
}

// One prompt for all requests that were rejected meanwhile.
function promptForKey(rejected) {
  prompting ||= new Promise((resolve) => {
    sessionStorage.removeItem(KEY);
    at("key-said").textContent = rejected ? "Invalid key." : "";
    at("login").hidden = false;
    at("key").focus();
    at("login").addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, at("key").value.trim());
      at("key").value = "";
      at("login").hidden = true;
      prompting = null;
      resolve();
    }, { once: true });
  });
  return prompting;
}

async function request(method, path, body) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await send(path, options);
  const text = await response.text();
  const result = text ? JSON.parse(text) : null;
  if (!response.ok) throw new Error(result && result.detail ? result.detail : `status ${response.status}`);
  return result;
}

// A stream of events with the Authorization header, which EventSource cannot send. It reconnects after the last event id.
function openStream(path, onEvent, onState = () => {}) {
  const controller = new AbortController();
  const closed = () => controller.signal.aborted;
  let last = null;
  async function once() {
    const headers = last === null ? {} : { "Last-Event-ID": last };
    const response = await send(path, { headers, signal: controller.signal });
    if (response.status === 204) return controller.abort();
    if (!response.ok) throw new Error(`status ${response.status}`);
    onState(true);
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
    if (fields.data !== undefined && !closed()) onEvent(fields.event || "message", JSON.parse(fields.data));
  }
  (async () => {
    while (!closed()) {
      await once().catch(() => {});
      if (closed()) return;
      onState(false);
      await new Promise((resolve) => { setTimeout(resolve, RECONNECT_DELAY_MS); });
    }
  })();
  return { close: () => controller.abort() };
}

function drawRows() {
  const wanted = at("status").value;
  const rows = [...shown.values()]
    .filter((each) => !wanted || each.status === wanted)
    .sort((a, b) => (a.started_at < b.started_at ? 1 : -1))
    .slice(0, MAX_ROWS);
  at("none").hidden = rows.length > 0;
  updateRows(rows);
}

// Existing rows are not removed and inserted again, because that would lose the focus.
function updateRows(rows) {
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
  const line = create("tr", undefined, { execution: each.execution_id });
  const open = create("button", each.execution_id);
  open.type = "button";
  open.addEventListener("click", () => select(each.execution_id).catch(showError));
  const first = create("td");
  first.append(open);
  const status = create("td");
  const badge = create("span");
  badge.className = "status";
  status.append(badge);
  line.append(first, create("td", each.workflow_id), status, create("td", each.started_at.replace("T", " ").slice(0, 19)));
  return line;
}

function fill(line, each) {
  const badge = line.querySelector(".status");
  badge.textContent = each.status;
  badge.dataset.status = each.status;
  const open = line.querySelector("button");
  if (selected !== null && each.execution_id === selected.execution_id) open.setAttribute("aria-current", "true");
  else open.removeAttribute("aria-current");
}

function showError(error) {
  at("said").textContent = error.message;
}

async function loadRows() {
  const wanted = at("status").value;
  const page = await request("GET", `/executions?limit=${MAX_ROWS}${wanted ? `&status=${wanted}` : ""}`);
  shown.clear();
  for (const each of page.executions) shown.set(each.execution_id, each);
  drawRows();
}

function followAll() {
  const link = at("link");
  openStream("/events", (kind, each) => {
    if (kind === "missed") loadRows().catch(showError);
    if (kind !== "execution") return;
    shown.set(each.execution_id, each);
    if (shown.size > 4 * MAX_ROWS) shown.delete(shown.keys().next().value);
    drawRows();
  }, (live) => {
    link.dataset.state = live ? "live" : "lost";
    link.textContent = live ? "live" : "reconnecting";
    if (live) loadRows().catch(showError);
  });
}

async function select(id) {
  const selection = (selectionCount += 1);
  const found = await request("GET", `/executions/${id}`);
  const definition = await request("GET", `/definitions/${found.hash}`);
  if (selection !== selectionCount) return; // another one was selected meanwhile
  if (stream) stream.close();
  selected = found;
  history.replaceState(null, "", `#${id}`);
  at("one").hidden = false;
  at("one-title").textContent = `${selected.workflow_id} ${id}`;
  at("events").replaceChildren();
  at("output").textContent = "";
  at("waiting").replaceChildren();
  at("nodes").replaceChildren(...definition.nodes.map(nodeBox));
  drawStatus();
  drawRows();
  follow(id);
}

function nodeBox(node) {
  const box = create("li", node.name || node.id, { node: node.id, status: "pending" });
  box.append(create("small", node.type));
  return box;
}

function drawStatus() {
  const badge = at("one-status");
  badge.textContent = selected.status;
  badge.dataset.status = selected.status;
  at("one-error").textContent = selected.error ? `${selected.error.code}: ${selected.error.message}` : "";
  const over = ENDED.has(selected.status);
  for (const button of at("acts").querySelectorAll("button")) {
    const act = button.dataset.act;
    button.hidden = act === "retry" ? !over || selected.status === "completed" : over
      || (act === "pause" && selected.status === "paused") || (act === "resume" && selected.status !== "paused");
  }
}

function paint(node, status, text) {
  const box = at("nodes").querySelector(`[data-node="${CSS.escape(node)}"]`);
  if (!box) return;
  box.dataset.status = status;
  if (text) box.querySelector("small").textContent = text;
}

function follow(id) {
  stream = openStream(`/executions/${id}/events?view=rollup`, (kind, data) => {
    if (kind === "message") showEvent(data, id);
    if (kind === "now") showRunning(data);
    if (kind !== "rollup") return;
    for (const split of data.splits) {
      for (const [node, counts] of Object.entries(split.nodes)) {
        const worst = counts.failed ? "failed" : counts.waiting ? "waiting" : "success";
        paint(node, worst, Object.entries(counts).map(([status, count]) => `${count} ${status}`).join(", "));
      }
    }
  });
}

// What runs now is a hint: a node that it no longer lists has ended, as an event tells, or waits for a worker again.
function showRunning(data) {
  for (const box of at("nodes").querySelectorAll('[data-status="running"]')) box.dataset.status = "pending";
  for (const each of data.running) paint(each.node_id, "running", each.progress);
}

function showEvent(event, id) {
  if (selected.execution_id !== id) return;
  const line = create("li", `${event.at.slice(11, 23)} ${event.kind} ${event.node_id || ""}`);
  line.value = event.number;
  at("events").prepend(line);
  while (at("events").children.length > MAX_EVENTS) at("events").lastChild.remove();
  const [what, status] = event.kind.split(".");
  if (what === "node") {
    paint(event.node_id, status);
    if (status === "waiting") explain().catch(showError);
  } else {
    if (status === "accepted") return;
    refresh(ENDED.has(status)).catch(showError);
  }
}

async function refresh(over) {
  const id = selected.execution_id;
  const found = await request("GET", `/executions/${id}`);
  if (selected.execution_id !== id) return;
  selected = found;
  drawStatus();
  shown.set(id, found);
  drawRows();
  if (!over) return;
  stream.close();
  at("waiting").replaceChildren();
  const page = await request("GET", `/executions/${id}/nodes?limit=1000`);
  if (selected.execution_id !== id) return;
  for (const run of page.nodes) if (run.lineage.length === 0) paint(run.node_id, run.status);
  const output = await request("GET", `/executions/${id}/output`);
  if (selected.execution_id === id) at("output").textContent = JSON.stringify(output, null, 2);
}

async function explain() {
  const id = selected.execution_id;
  const found = await request("GET", `/executions/${id}/explain`);
  if (selected.execution_id !== id) return;
  at("waiting").replaceChildren(...found.waiting.map((each) => create("li", `${each.node} ${each.reason}`)));
}

at("status").addEventListener("change", () => loadRows().catch(showError));

at("acts").addEventListener("click", async (event) => {
  const act = event.target.dataset.act;
  if (!act || !selected) return;
  try {
    const result = await request("POST", `/executions/${selected.execution_id}/${act}`, act === "cancel" || act === "retry" ? {} : undefined);
    if (act === "retry") await select(result.execution_id);
    else await refresh(false);
  } catch (error) {
    at("one-error").textContent = error.message;
  }
});

at("start").addEventListener("submit", async (event) => {
  event.preventDefault();
  const message = at("said");
  try {
    const input = JSON.parse(at("input").value || "{}");
    const started = await request("POST", `/workflows/${at("workflow").value}/executions`, { input });
    message.textContent = `Started ${started.execution_id}`;
    await select(started.execution_id);
  } catch (error) {
    message.textContent = error.message;
  }
});

async function load() {
  const version = await (await fetch("/version")).json();
  at("version").textContent = version.version;
  const stored = await request("GET", "/workflows?limit=1000");
  at("workflow").replaceChildren(...stored.workflows.map((each) => {
    const option = create("option", each.name || each.workflow_id);
    option.value = each.workflow_id;
    return option;
  }));
  const hello = stored.workflows.find((each) => each.workflow_id === "hello");
  if (hello) at("workflow").value = "hello";
  followAll();
  if (location.hash.length > 1) await select(location.hash.slice(1));
}

load().catch(showError);
