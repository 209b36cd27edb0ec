// The status page. Everything that comes from outside is shown as text.
"use strict";

const API = "/api/v1";
const ENDED = new Set(["completed", "failed", "halted", "cancelled"]);
const MOST_ROWS = 50;
const MOST_EVENTS = 200;
const shown = new Map();
let chosen = null;
let choosing = 0;
let following = null;

const at = (id) => document.getElementById(id);

function made(tag, text, data) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  Object.assign(element.dataset, data || {});
  return element;
}

async function ask(method, path, body) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(API + path, options);
  const text = await response.text();
  const answer = text ? JSON.parse(text) : null;
  if (!response.ok) throw new Error(answer && answer.detail ? answer.detail : `status ${response.status}`);
  return answer;
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
  const source = new EventSource(`${API}/events`);
  const link = at("link");
  source.addEventListener("open", () => {
    link.dataset.state = "live";
    link.textContent = "live";
    loadRows().catch(tell);
  });
  source.addEventListener("error", () => {
    link.dataset.state = "lost";
    link.textContent = "connecting again";
  });
  source.addEventListener("missed", () => loadRows().catch(tell));
  source.addEventListener("execution", (event) => {
    const each = JSON.parse(event.data);
    shown.set(each.execution_id, each);
    if (shown.size > 4 * MOST_ROWS) shown.delete(shown.keys().next().value);
    drawRows();
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
  following = new EventSource(`${API}/executions/${id}/events?view=rollup`);
  following.addEventListener("message", (event) => hear(JSON.parse(event.data), id));
  following.addEventListener("rollup", (event) => {
    for (const split of JSON.parse(event.data).splits) {
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
