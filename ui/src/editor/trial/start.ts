/** Runs of the draft, which is not stored: from its beginning, or from a node on with the data of a former execution. */
import { ApiError, api, newKey, read, readJson } from "../../api/client";
import { toJson, type Json } from "../../text/json";
import type { View } from "../document/document";
import { pinMembers, type Pins } from "../state/pins";

/** The body is written as text, because numbers of a document can be larger than those of JavaScript. */
const raw = { bodySerializer: (each: unknown) => each as string, headers: { "Content-Type": "application/json" } };

export async function startDraft(view: View, input: unknown, pins: Pins, key: string): Promise<string> {
  const body = `{"definition":${toJson(view.value)},"input":${toJson(input ?? {})},"labels":{"draft":"true"}${pinMembers(pins, view)}}`;
  const started = await read(
    api.POST("/api/v1/executions", { params: { header: { "Idempotency-Key": key } }, body: body as never, ...raw }),
  );
  return started.execution_id;
}

/** Nodes that do not depend on `node` keep their results of the former execution. */
export async function startFrom(view: View, execution: string, node: string, pins: Pins): Promise<string> {
  const body = `{"node":${toJson(node)},"definition":${toJson(view.value)}${pinMembers(pins, view)}}`;
  const started = await read(
    api.POST("/api/v1/executions/{execution}/rerun", {
      params: { path: { execution }, header: { "Idempotency-Key": newKey() } },
      body: body as never,
      ...raw,
    }),
  );
  return started.execution_id;
}

export function readInput(execution: string): Promise<unknown> {
  return readJson(`/api/v1/executions/${execution}/input`);
}

/** The output of a node in an execution; undefined if it has none. */
export async function readOutput(execution: string, node: string): Promise<Json | undefined> {
  return readJson<Json>(`/api/v1/executions/${execution}/nodes/${encodeURIComponent(node)}/output`).catch(
    (error: unknown) => {
      if (error instanceof ApiError && error.status === 404) return undefined;
      throw error;
    },
  );
}
