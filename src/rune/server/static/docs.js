// The API reference: Swagger UI over the OpenAPI document of this server. Nothing is loaded from other hosts.
"use strict";

const KEY = "rune-key"; // session storage: one tab, until it is closed
const SCHEME = "key"; // the name of the security scheme in the document
const at = (id) => document.getElementById(id);

function show(spec, key) {
  at("login").hidden = true;
  const ui = SwaggerUIBundle({
    spec,
    domNode: at("reference"),
    deepLinking: true,
    docExpansion: "none",
    validatorUrl: null,
    onComplete: () => {
      if (key) ui.preauthorizeApiKey(SCHEME, key);
    },
  });
}

async function load() {
  const key = sessionStorage.getItem(KEY);
  const response = await fetch("/api/v1/openapi.json", {
    headers: key ? { Authorization: `Bearer ${key}` } : {},
  });
  if (response.ok) {
    show(await response.json(), key);
    return;
  }
  sessionStorage.removeItem(KEY);
  at("said").textContent = response.status !== 401 ? `Status ${response.status}.` : key ? "Invalid key." : "";
  at("login").hidden = false;
  at("key").focus();
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("key").value.trim());
  at("key").value = "";
  load();
});

load();
