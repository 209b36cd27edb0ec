// The API reference: Swagger UI over the OpenAPI document of this server. Nothing is loaded from other hosts.
// A key is exchanged for the cookie of a session and not kept.
"use strict";

const at = (id) => document.getElementById(id);

function show(spec) {
  at("login").hidden = true;
  SwaggerUIBundle({
    spec,
    domNode: at("reference"),
    deepLinking: true,
    docExpansion: "none",
    validatorUrl: null,
  });
}

function ask(said) {
  at("said").textContent = said;
  at("login").hidden = false;
  at("key").focus();
}

async function load() {
  const response = await fetch("/api/v1/openapi.json");
  if (response.ok) show(await response.json());
  else ask(response.status === 401 ? "" : `Status ${response.status}.`);
}

async function signIn(key) {
  const response = await fetch("/api/v1/session", {
    method: "POST",
    headers: { Authorization: `Bearer ${key}` },
  });
  if (response.ok) await load();
  else ask(response.status === 401 ? "Invalid key." : `Status ${response.status}.`);
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = at("key").value.trim();
  at("key").value = "";
  signIn(key);
});

load();
