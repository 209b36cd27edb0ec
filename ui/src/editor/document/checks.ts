/** The server's checks of a draft: problems, outlets, what each node may mention, and the layout. */
import { useEffect, useRef, useState } from "react";
import { ApiError, api, read, type Schemas } from "../../api/client";
import { pictureOf } from "../../api/layout";
import { CARD, type Picture } from "../../graph/model";
import { listOf } from "../../text/renaming";
import { isObject, parsePath, partAt, toJson } from "../../text/tree";
import type { View, WorkflowDocument } from "./document";

export type Problem = Schemas["Problem"];
export type Checked = {
  revision: number;
  valid: boolean;
  hash: string | null;
  problems: PlacedProblem[];
  outlets: ReadonlyMap<string, readonly string[]>;
  mentions: ReadonlyMap<string, readonly string[]>;
  /** The innermost split around each node that runs for its items. */
  splits: ReadonlyMap<string, string>;
  picture: Picture | null;
};
/** A problem with its place in the text and the node it belongs to. */
export type PlacedProblem = { problem: Problem; node: string | null; start: number | null; end: number | null };

export const UNCHECKED: Checked = {
  revision: -1,
  valid: true,
  hash: null,
  problems: [],
  outlets: new Map(),
  mentions: new Map(),
  splits: new Map(),
  picture: null,
};

const DELAY_MS = 300;
const AGAIN_MS = 3_000; // after a check that failed
// The server reads JSON a hundred times faster than YAML; problems are found by their paths then, not by lines.
const MAX_YAML_BYTES = 40_000;
const SPACE = 32; // frames of splits need room above the cards; see `api/layout`

export function nodeOfPath(document: WorkflowDocument, path: string): string | null {
  const [list, index] = parsePath(path);
  if (list === "nodes" && typeof index === "number")
    return document.view.nodes.find((each) => each.index === index)?.id ?? null;
  if (list === "edges" && typeof index === "number")
    return document.view.edges.find((each) => each.path[0] === "edges" && each.path[1] === index)?.src ?? null;
  return null;
}

/** Where a problem stands in the text: the value of its path, the nearest one that exists, else its line. */
export function placed(document: WorkflowDocument, problem: Problem): PlacedProblem {
  const node = nodeOfPath(document, problem.path);
  const path = parsePath(problem.path);
  if (document.source && !document.error) {
    for (let length = path.length; length > 0; length--) {
      const part = partAt(document.source.root, path.slice(0, length));
      if (part)
        return {
          problem,
          node,
          start: part.start,
          end: part.kind === "scalar" && part.end > part.start ? part.end : lineEnd(document.text, part.start),
        };
    }
  }
  if (typeof problem.line === "number") {
    const lines = document.text.split("\n").slice(0, problem.line - 1);
    const start = lines.reduce((sum, each) => sum + each.length + 1, 0) + Math.max((problem.column ?? 1) - 1, 0);
    return {
      problem,
      node,
      start: Math.min(start, document.text.length),
      end: lineEnd(document.text, Math.min(start, document.text.length)),
    };
  }
  return { problem, node, start: null, end: null };
}

function lineEnd(text: string, at: number): number {
  const found = text.indexOf("\n", at);
  return found < 0 ? text.length : found;
}

/** The server's layout of some of the nodes and the edges between them. */
export async function layoutOf(view: View, ids: ReadonlySet<string>): Promise<Picture> {
  const nodes = view.nodes
    .filter((each) => ids.has(each.id))
    .map(({ raw }) =>
      Array.isArray(raw.dependencies)
        ? { ...raw, dependencies: raw.dependencies.filter((each) => ids.has(String(each))) }
        : raw,
    );
  const edges = listOf(view.value, "edges").filter(
    (each) => isObject(each) && ids.has(String(each.src)) && ids.has(String(each.dst)),
  );
  const answer = await validate(toJson({ id: view.id || "selection", nodes, edges }), true);
  if (!answer.layout) throw new Error("The server has no layout for these nodes.");
  return pictureOf(answer.layout as never);
}

function validate(body: string, isJson: boolean, signal?: AbortSignal) {
  return read(
    api.POST("/api/v1/workflows/validate", {
      params: { query: { plan: true, layout: true, width: CARD.width, height: CARD.height + SPACE } as never },
      headers: { "Content-Type": isJson ? "application/json" : "application/yaml" },
      body: body as never,
      bodySerializer: (text: unknown) => text as string,
      ...(signal ? { signal } : {}),
    }),
  );
}

async function check(document: WorkflowDocument, signal: AbortSignal): Promise<Checked> {
  const revision = document.revision;
  const large = document.text.length > MAX_YAML_BYTES && document.source !== null && !document.error;
  const isJson = document.format === "json" || large;
  const body = large && document.source ? toJson(document.source.value) : document.text;
  const answer = await validate(body, isJson, signal);
  const plan = Object.entries(answer.plan ?? {});
  return {
    revision,
    valid: answer.valid,
    hash: answer.hash,
    problems: answer.problems.map((each) => placed(document, each)),
    outlets: new Map(plan.map(([id, each]) => [id, each.outlets])),
    mentions: new Map(plan.map(([id, each]) => [id, each.mentions])),
    splits: new Map(plan.flatMap(([id, each]) => (each.split === null ? [] : [[id, each.split] as const]))),
    picture: answer.layout ? pictureOf(answer.layout as never) : null,
  };
}

/** The checks of the present text, 300 ms after the last change. The last ones stay until new ones arrive. */
export function useChecks(document: WorkflowDocument, revision: number): { checked: Checked; error: Error | null } {
  const [checked, setChecked] = useState<Checked>(UNCHECKED);
  const [error, setError] = useState<Error | null>(null);
  const first = useRef(true);
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const checkAfter = (delay: number): void => {
      timer = setTimeout(() => {
        check(document, abort.signal).then(
          (found) => {
            setError(null);
            // A text that cannot be read has no plan: the last one stays.
            setChecked((before) =>
              found.picture
                ? found
                : {
                    ...found,
                    picture: before.picture,
                    outlets: before.outlets,
                    mentions: before.mentions,
                    splits: before.splits,
                  },
            );
          },
          (problem: Error) => {
            if (abort.signal.aborted) return;
            setError(problem);
            // What the server refused it would refuse again.
            if (!(problem instanceof ApiError && problem.status < 500)) checkAfter(AGAIN_MS);
          },
        );
      }, delay);
    };
    checkAfter(first.current ? 0 : DELAY_MS);
    first.current = false;
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [document, revision]);
  return { checked, error };
}
