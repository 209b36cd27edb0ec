/** The client of the HTTP API. Requests carry the session cookie; a response of 401 asks for a key once. */
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type ExecutionView = Schemas["ExecutionView"];
export type ExecutionDetail = Schemas["ExecutionDetail"];

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    readonly problems: { severity?: string; code?: string; message?: string; location?: string }[] = [],
    /** The id by which the log of the server names the request. */
    readonly request = "",
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** Whether a key is needed; the shell shows the login while it is true. */
class Session {
  needed = false;
  /** Whether the person has signed out: nothing of theirs is stored from then on. */
  hasLeft = false;
  private listeners = new Set<() => void>();

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  read = (): boolean => this.needed;

  leave(): void {
    this.hasLeft = true;
    this.set(true);
  }

  enter(): void {
    this.hasLeft = false;
    this.set(false);
  }

  set(needed: boolean): void {
    if (this.needed === needed) return;
    this.needed = needed;
    for (const listener of this.listeners) listener();
  }
}

export const session = new Session();

async function send(request: Request): Promise<Response> {
  const response = await fetch(request);
  if (response.status === 401 && !new URL(request.url).pathname.endsWith("/session")) session.set(true);
  return response;
}

export const api = createClient<paths>({ baseUrl: "", fetch: send });

type Answer<T> = { data?: T; error?: unknown; response: Response };

function problemOf(error: unknown, response: Response): ApiError {
  const body = (error ?? {}) as { detail?: string; title?: string; code?: string; problems?: []; request_id?: string };
  const text = body.detail ?? body.title ?? `The server answered ${response.status}.`;
  return new ApiError(text, response.status, body.code ?? "", body.problems, body.request_id ?? response.headers.get("X-Request-Id") ?? "");
}

/** The data of a response, or an `ApiError`. */
export async function read<T>(answer: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await answer;
  if (!response.ok) throw problemOf(error, response);
  return data as T;
}

/** A request for a value that the OpenAPI document does not describe further. */
export async function readJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await get(path, signal)).json()) as T;
}

/** The text of a response as it was sent. */
export async function readText(path: string): Promise<string> {
  return (await get(path)).text();
}

async function get(path: string, signal?: AbortSignal): Promise<Response> {
  const response = await send(new Request(path, signal ? { signal } : {}));
  if (response.ok) return response;
  const body: unknown = await response.json().catch(() => null);
  throw problemOf(body, response);
}

export function newKey(): string {
  return `ui-${crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint32Array(4)), (each) => each.toString(16)).join("")}`;
}

export async function signIn(key: string): Promise<void> {
  await read(api.POST("/api/v1/session", { headers: { Authorization: `Bearer ${key}` } }));
  session.enter();
}

// Stored for a moment, so that other tabs hear of it.
const SIGNED_OUT = "rune-signed-out";

globalThis.addEventListener?.("storage", (event) => {
  if ((event as StorageEvent).key === SIGNED_OUT && (event as StorageEvent).newValue) session.leave();
});

/** Drafts of the editor belong to the person who signs out. */
function forgetDrafts(): void {
  try {
    localStorage.setItem(SIGNED_OUT, String(Date.now()));
    localStorage.removeItem(SIGNED_OUT);
    for (const key of Object.keys(localStorage)) if (key.startsWith("rune-draft:")) localStorage.removeItem(key);
  } catch {
    // Storage is blocked: there are no drafts.
  }
}

export async function signOut(): Promise<void> {
  await read(api.DELETE("/api/v1/session"));
  session.leave();
  forgetDrafts();
}
