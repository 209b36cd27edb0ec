/** A field for an expression or a template, with colours, completion and a preview that the server computes. */
import { useEffect, useId, useRef, useState, type JSX } from "react";
import { api, read } from "../../api/client";
import { Sentence } from "../../parts/controls";
import { openExpression } from "./code";
import { lexTemplate, lexWhole } from "../../text/references";
import { namesOf } from "../../text/renaming";
import { fromJson, toJson, type Json } from "../../text/json";
import { suggestions, type Known } from "./suggest";

/** Where expressions are evaluated: a node of the draft, and a former execution whose data they see. */
export type Place = {
  node: string;
  /** The nodes before it. */
  after: readonly string[];
  /** The ids that renamed nodes have in former executions. */
  renamed: ReadonlyMap<string, string>;
  execution: string | null;
  lineage: string;
  known: Known;
  document: Json;
};

const DELAY_MS = 150;

type Preview = { text: string | null; type: string | null; message: string | null; hint: string };

/** The place as the server needs it: a node that the execution does not have is described by its neighbours. */
export function draftOf(
  text: string,
  whole: boolean,
  { after, renamed, document }: Pick<Place, "after" | "renamed" | "document">,
): { after: string[]; names: Record<string, string> } {
  const { references } = (whole ? lexWhole : lexTemplate)(text, namesOf(document));
  const mentioned = references.filter((each) => !each.titled).map(({ id }) => [id, id] as const);
  return { after: [...after], names: Object.fromEntries([...mentioned, ...renamed]) };
}

function usePreview(text: string, whole: boolean, place: Place): Preview | null {
  const [found, setFound] = useState<Preview | null>(null);
  const { execution, node, lineage } = place;
  const draft = execution === null ? "" : toJson(draftOf(text, whole, place));
  useEffect(() => {
    if (execution === null || text === "" || (!whole && !/\$|\{\{/.test(text))) {
      setFound(null);
      return;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      read(
        api.POST("/api/v1/expressions/preview", {
          body: {
            text,
            mode: whole ? "expression" : "template",
            execution,
            node,
            lineage,
            draft: fromJson(draft),
          } as never,
          signal: abort.signal,
        }),
      ).then(
        (answer) => {
          const problem = answer.problems[0];
          setFound({
            text: answer.text,
            type: answer.type,
            message: problem?.message ?? null,
            hint: problem?.hint ?? "",
          });
        },
        (error: Error) => {
          if (!abort.signal.aborted) setFound({ text: null, type: null, message: error.message, hint: "" });
        },
      );
    }, DELAY_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, whole, execution, node, lineage, draft]);
  return found;
}

export function Expression({
  label,
  value,
  whole,
  place,
  onChange,
}: {
  label: string;
  value: string;
  whole: boolean;
  place: Place;
  onChange: (text: string) => void;
}): JSX.Element {
  const id = useId();
  const host = useRef<HTMLDivElement>(null);
  const opened = useRef<ReturnType<typeof openExpression> | null>(null);
  const latest = useRef({ place, onChange, whole });
  useEffect(() => {
    latest.current = { place, onChange, whole };
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: the editor is made once; later values are set below.
  useEffect(() => {
    if (!host.current) return;
    const made = openExpression(host.current, value, {
      label,
      describedBy: undefined,
      names: () => namesOf(latest.current.place.document),
      isWhole: () => latest.current.whole,
      suggest: ({ text, at }) => suggestions(text, at, latest.current.place.known, latest.current.whole),
      onChange: (text) => latest.current.onChange(text),
    });
    opened.current = made;
    return () => made.destroy();
  }, [label]);
  useEffect(() => opened.current?.set(value), [value]);
  useEffect(() => opened.current?.refresh(), [place.known]);
  const preview = usePreview(value, whole, place);
  return (
    <div className="edit-expression">
      <div ref={host} className="edit-expression-box" />
      {preview && (
        <output
          id={`${id}-preview`}
          className="edit-preview"
          aria-label={`Preview of ${label}`}
          data-failed={preview.message !== null || undefined}
        >
          {preview.message !== null ? (
            <>
              <Sentence text={preview.message} /> <Sentence text={preview.hint} />
            </>
          ) : (
            <>
              <span className="tag">{preview.type}</span> <code>{preview.text}</code>
            </>
          )}
        </output>
      )}
    </div>
  );
}
