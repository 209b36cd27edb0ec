/** Publishing a draft: its problems, what changed, a note; and the merge with what another author published meanwhile. */
import { useEffect, useState, type JSX } from "react";
import { ApiError, api, bodyOf, read, type Schemas } from "../../api/client";
import { Button, Failure, Field, Input, Notice, Skeleton } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { Diff } from "../../parts/diff";
import { plural } from "../../parts/format";
import { toJson } from "../../text/json";
import { lineDiff } from "../../text/line_diff";
import type { Base, WorkflowDocument } from "../document/document";
import { merged, textOf, type Choice, type Piece } from "./merge";

/** The newest text of a workflow with its entity tag, which the next publication expects. */
type Published = Base & { tag: string };

/** Null if there is no such workflow. */
export async function readBase(workflow: string): Promise<Published | null> {
  const at = Date.now();
  let detail: Schemas["WorkflowDetail"];
  try {
    detail = await read(api.GET("/api/v1/workflows/{workflow}", { params: { path: { workflow } } }));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
  const source = await fetch(`/api/v1/workflows/${encodeURIComponent(workflow)}/versions/${detail.version}/source`);
  if (!source.ok && source.status !== 404)
    throw new ApiError(`The server answered ${source.status}.`, source.status, "");
  // A version that was stored without its text is shown as JSON.
  const text = source.ok ? await source.text() : `${toJson(detail.definition, 2)}\n`;
  // A proxy that compresses marks the tag as weak; the text is the same.
  const tag = source.ok ? source.headers.get("ETag")?.replace(/^W\//, "") : undefined;
  return { text, tag: tag ?? `"${detail.hash}"`, version: detail.version, at };
}

type Answer = { version: number; workflow_id: string };

/** Stores the text if the newest published one is still that of `tag`; null: if there is no such workflow. */
async function put(
  document: WorkflowDocument,
  workflow: string | null,
  tag: string | null,
  note: string,
): Promise<Answer> {
  const headers: Record<string, string> = {
    "Content-Type": document.format === "json" ? "application/json" : "application/yaml",
  };
  if (tag === null) headers["If-None-Match"] = "*";
  else headers["If-Match"] = tag;
  const query = note ? `?note=${encodeURIComponent(note)}` : "";
  const path =
    workflow === null ? `/api/v1/workflows${query}` : `/api/v1/workflows/${encodeURIComponent(workflow)}${query}`;
  const response = await fetch(path, { method: workflow === null ? "POST" : "PUT", headers, body: document.text });
  const body = (await bodyOf(response).catch(() => ({}))) as Answer & { detail?: string; code?: string; problems?: [] };
  if (!response.ok)
    throw new ApiError(
      body.detail ?? `The server answered ${response.status}.`,
      response.status,
      body.code ?? "",
      body.problems,
    );
  return body;
}

type Props = {
  document: WorkflowDocument;
  workflow: string | null;
  errors: number;
  onPublished: (workflow: string, version: number, base: Base) => void;
  onMerged: (text: string, base: Base) => void;
  onClose: () => void;
};

export function PublishDialog({ document, workflow, errors, onPublished, onMerged, onClose }: Props): JSX.Element {
  const [note, setNote] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const [newest, setNewest] = useState<Published | null | "loading">(workflow === null ? null : "loading");
  useEffect(() => {
    if (workflow === null) return;
    readBase(workflow).then(setNewest, setError);
  }, [workflow]);
  if (newest === "loading") {
    return (
      <Dialog title="Publish" onClose={onClose}>
        {error ? <Failure error={error} /> : <Skeleton />}
      </Dialog>
    );
  }
  if (newest && newest.text !== document.base.text)
    return <MergeDialog document={document} theirs={newest} onMerged={onMerged} onClose={onClose} />;
  /** Another author was faster: their text is merged, if it is another one. */
  const readAgain = (workflow: string, problem: Error): void => {
    readBase(workflow).then((found) => {
      setNewest(found);
      if (found?.text === document.base.text) setError(problem);
    }, setError);
  };
  const publish = (): void => {
    setBusy(true);
    setError(null);
    const text = document.text;
    put(document, workflow, newest?.tag ?? null, note).then(
      ({ workflow_id, version }) => onPublished(workflow_id, version, { text, version, at: Date.now() }),
      (problem: Error) => {
        setBusy(false);
        if (problem instanceof ApiError && problem.status === 409 && workflow !== null) readAgain(workflow, problem);
        else setError(problem);
      },
    );
  };
  const problems = error instanceof ApiError ? error.problems : [];
  return (
    <Dialog
      title={workflow === null ? "Publish a new workflow" : `Publish a version of ${workflow}`}
      lead={
        document.base.version === null
          ? "This is its first version."
          : `Changes since version ${document.base.version}. A change of positions and notes alone makes no new version.`
      }
      wide
      onClose={onClose}
      onSubmit={publish}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button
            type="submit"
            kind="primary"
            disabled={busy || errors > 0 || (!document.changed && workflow !== null)}
          >
            Publish
          </Button>
        </>
      }
    >
      {errors > 0 && (
        <Notice state="failed">{`The draft has ${plural(errors, "problem")}; correct them first.`}</Notice>
      )}
      {!document.changed && workflow !== null && <Notice state="waiting">The draft is the published text.</Notice>}
      <Field label="Note" hint="What this version changes, for others who read the list of versions.">
        {(ids) => (
          <Input {...ids} autoFocus value={note} maxLength={500} onChange={(event) => setNote(event.target.value)} />
        )}
      </Field>
      <Diff lines={lineDiff(workflow === null ? "" : document.base.text, document.text)} label="Changed lines" />
      {error && (
        <Notice state="failed">
          <span>{error.message}</span>
          {problems.slice(0, 5).map((each, index) => (
            <span key={index}>{each.message}</span>
          ))}
        </Notice>
      )}
    </Dialog>
  );
}

function MergeDialog({
  document,
  theirs,
  onMerged,
  onClose,
}: {
  document: WorkflowDocument;
  theirs: Base;
  onMerged: (text: string, base: Base) => void;
  onClose: () => void;
}): JSX.Element {
  const pieces = merged(document.base.text, document.text, theirs.text);
  const conflicts = pieces.filter((each): each is Extract<Piece, { kind: "conflict" }> => each.kind === "conflict");
  const [choices, setChoices] = useState<(Choice | null)[]>(conflicts.map(() => null));
  const open = choices.filter((each) => each === null).length;
  const result = textOf(
    pieces,
    choices.map((each) => each ?? "mine"),
  );
  return (
    <Dialog
      title="Another author published meanwhile"
      lead={`The text of version ${theirs.version} is newer than the text that this draft began from. ${conflicts.length === 0 ? "The changes touch different lines and fit together." : `${plural(conflicts.length, "place")} changed on both sides; choose for each.`}`}
      wide
      onClose={onClose}
      onSubmit={() => open === 0 && onMerged(result, theirs)}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button type="submit" kind="primary" disabled={open > 0}>
            Merge into the draft
          </Button>
        </>
      }
    >
      {conflicts.map((each, index) => (
        <fieldset key={index} className="edit-record">
          <legend>Conflict {index + 1}</legend>
          <div className="edit-sides">
            <div>
              <b>Yours</b>
              <pre role="group" tabIndex={0} aria-label="Your lines">
                {each.mine.join("\n") || "(removed)"}
              </pre>
            </div>
            <div>
              <b>Theirs</b>
              <pre role="group" tabIndex={0} aria-label="Their lines">
                {each.theirs.join("\n") || "(removed)"}
              </pre>
            </div>
          </div>
          <div className="segments" role="group" aria-label={`Choice for conflict ${index + 1}`}>
            {(["mine", "theirs", "both"] as const).map((choice) => (
              <button
                key={choice}
                type="button"
                aria-pressed={choices[index] === choice}
                onClick={() => setChoices(choices.map((old, at) => (at === index ? choice : old)))}
              >
                {choice === "mine" ? "Keep yours" : choice === "theirs" ? "Take theirs" : "Take both"}
              </button>
            ))}
          </div>
        </fieldset>
      ))}
      <h3>The draft after the merge, against version {theirs.version}</h3>
      <Diff lines={lineDiff(theirs.text, result)} label="Changed lines after the merge" />
    </Dialog>
  );
}
