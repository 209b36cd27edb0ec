/** The client of the HTTP API. Requests carry the session cookie; a response of 401 asks for a key once. */
import createClient from "openapi-fetch";
import { fromJson, toJson } from "../text/json";
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

/**
 * Whether a key is needed; the login is shown while it is true. What a person has typed stays behind the login when their
 * session expires, and is given up if somebody else signs in.
 */
class Session {
  needed = false;
  /** Whether the person has signed out: nothing of theirs is stored from then on. */
  hasLeft = false;
  /** The principal of the session; empty if the server asks for no key, null if it is not known yet. */
  person: string | null = null;
  /** Grows when another person than before uses this page. */
  visit = 0;
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

  /** Takes note of who uses the page. */
  meet(person: string): void {
    const isOther = this.person !== null && this.person !== person;
    this.person = person;
    if (isOther) {
      this.visit++;
      this.tell();
    }
  }

  enter(person: string): void {
    // What was shown before the sign-out is not shown again, not even to the same person.
    if (this.hasLeft) this.person = null;
    this.hasLeft = false;
    this.meet(person);
    this.set(false);
  }

  set(needed: boolean): void {
    if (this.needed === needed) return;
    this.needed = needed;
    this.tell();
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }

  /** What has to change for a page to be shown anew. */
  readVisit = (): number => this.visit;
}

export const session = new Session();

async function send(request: Request): Promise<Response> {
  const response = await fetch(request);
  if (response.status === 401 && !new URL(request.url).pathname.endsWith("/session")) session.set(true);
  return response;
}

type Client = ReturnType<typeof createClient<paths>>;
type Call = (path: string, init?: { parseAs?: string }) => Promise<Answer<unknown>>;

/** The client with the reader of JSON that keeps the digits of numbers; its own is that of the browser. */
function withDigits(client: Client): Client {
  const read =
    (call: Call): Call =>
    async (path, init) => {
      if (init?.parseAs) return call(path, init);
      const answer = await call(path, { ...init, parseAs: "text" });
      return answer.response.ok
        ? { ...answer, data: answer.data ? fromJson(answer.data as string) : undefined }
        : answer;
    };
  const { GET, PUT, POST, PATCH, DELETE } = client as unknown as Record<string, Call>;
  return {
    GET: read(GET as Call),
    PUT: read(PUT as Call),
    POST: read(POST as Call),
    PATCH: read(PATCH as Call),
    DELETE: read(DELETE as Call),
  } as unknown as Client;
}

export const api = withDigits(
  createClient<paths>({ baseUrl: "", fetch: send, bodySerializer: (body: unknown) => toJson(body) }),
);

type Answer<T> = { data?: T; error?: unknown; response: Response };

function problemOf(error: unknown, response: Response): ApiError {
  const body = (error ?? {}) as { detail?: string; title?: string; code?: string; problems?: []; request_id?: string };
  const text = body.detail ?? body.title ?? `The server answered ${response.status}.`;
  return new ApiError(
    text,
    response.status,
    body.code ?? "",
    body.problems,
    body.request_id ?? response.headers.get("X-Request-Id") ?? "",
  );
}

/** The data of a response, or an `ApiError`. */
export async function read<T>(answer: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await answer;
  if (!response.ok) throw problemOf(error, response);
  return data as T;
}

/** A request for a value that the OpenAPI document does not describe further. */
export async function readJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await bodyOf(await get(path, signal))) as T;
}

/** The JSON of a response. */
export async function bodyOf(response: Response): Promise<unknown> {
  return fromJson(await response.text());
}

/** The text of a response as it was sent. */
export async function readText(path: string): Promise<string> {
  return (await get(path)).text();
}

async function get(path: string, signal?: AbortSignal): Promise<Response> {
  const response = await send(new Request(path, signal ? { signal } : {}));
  if (response.ok) return response;
  const body: unknown = await bodyOf(response).catch(() => null);
  throw problemOf(body, response);
}

export function newKey(): string {
  return `ui-${crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint32Array(4)), (each) => each.toString(16)).join("")}`;
}

export async function signIn(key: string): Promise<void> {
  session.enter(personOf(await read(api.POST("/api/v1/session", { headers: { Authorization: `Bearer ${key}` } }))));
}

export function personOf(me: Schemas["Me"]): string {
  return me.authentication === "none" ? "" : me.principal;
}

// Stored for a moment, so that other tabs hear of it.
const SIGNED_OUT = "rune-signed-out";

globalThis.addEventListener?.("storage", (event) => {
  if ((event as StorageEvent).key === SIGNED_OUT && (event as StorageEvent).newValue) session.leave();
});

/** The prefix of everything of the editor that belongs to a person. */
export function prefixOf(person: string | null): string {
  return person ? `rune-draft:${encodeURIComponent(person)}/` : "rune-draft:";
}

/** Drafts of the editor belong to the person who signs out. Those of other people, whose sessions expired, are theirs. */
function forgetDrafts(person: string | null): void {
  try {
    localStorage.setItem(SIGNED_OUT, String(Date.now()));
    localStorage.removeItem(SIGNED_OUT);
    if (!person) return;
    for (const key of Object.keys(localStorage)) if (key.startsWith(prefixOf(person))) localStorage.removeItem(key);
  } catch {
    // Storage is blocked: there are no drafts.
  }
}

export async function signOut(): Promise<void> {
  await read(api.DELETE("/api/v1/session"));
  session.leave();
  forgetDrafts(session.person);
}
