/** Imports a workflow of another tool: the server converts it, the report says what became of each element, and the
 * result opens in the editor as a draft. Nothing is stored on the server. */
import { FileUp } from "lucide-react";
import { useMemo, useRef, useState, type ChangeEvent, type JSX, type ReactNode } from "react";
import { useLocation } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { placeOf, readDraft, writeDraft } from "../../editor/document/drafts";
import { TEMPLATE } from "../../editor/document/template";
import { Button, CopyButton, Field, Notice, Select, Sentence } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { DownloadText } from "../../parts/file_link";
import { count, plural } from "../../parts/format";
import { guessFormat } from "../../text/document";
import type { Json } from "../../text/tree";
import { Writer } from "../../text/writing";

type Imported = Schemas["Imported"];
type Entry = Schemas["ImportEntry"];

const FORMATS = [
  ["", "Detect from the document"],
  ["n8n", "n8n"],
  ["asl", "AWS Step Functions"],
  ["canvas", "canvas document"],
] as const;
/** The outcomes in the order of the attention that they need, with the colour of each. */
const STATUSES = [
  ["by_hand", "by hand", "failed"],
  ["approximated", "approximated", "waiting"],
  ["changed", "changed", "running"],
  ["carried", "carried", "success"],
] as const;
const WRITER = new Writer({
  asJson: false,
  padded: true,
  spaced: true,
  step: 2,
  listStep: 2,
  newline: "\n",
  endsWithNewline: true,
});

async function convert(text: string, format: string, name: string, stubs: boolean): Promise<Imported> {
  return read(
    api.POST("/api/v1/workflows/import", {
      params: { query: { ...(format ? { format } : {}), ...(name ? { name } : {}), stubs } as never },
      headers: { "Content-Type": guessFormat(text) === "json" ? "application/json" : "application/yaml" },
      body: text as never,
      bodySerializer: (body: unknown) => body as string,
    }),
  );
}

function yamlOf(value: Json): string {
  return `${WRITER.block(value, 0)}\n`;
}

/** The test with the pinned data as a file for `rune test`, which has the new workflow in it; null if nothing was pinned. */
function pinnedTest({ test, document }: Imported): { name: string; text: string } | null {
  const { case: title, ...rest } = test as { [key: string]: Json };
  if (title === undefined) return null;
  const { id } = document as { id?: Json };
  return {
    name: `test_${String(id ?? "workflow")}.yaml`,
    text: yamlOf({ case: title, document: document as Json, ...rest }),
  };
}

/** Keeps the document as the draft of a new workflow. */
function keep(document: Json): boolean {
  const text = yamlOf(document);
  return writeDraft(placeOf(""), {
    base: { text: TEMPLATE, version: null },
    saved: { text, undo: [], redo: [] },
    at: Date.now(),
    imported: true,
  });
}

export function ImportDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const [, go] = useLocation();
  const [text, setText] = useState("");
  const [name, setName] = useState("");
  const [format, setFormat] = useState("");
  const [stubs, setStubs] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [found, setFound] = useState<Imported | null>(null);
  const file = useRef<HTMLInputElement>(null);
  const replaced = useRef(readDraft(placeOf(""))).current;
  const choose = (event: ChangeEvent<HTMLInputElement>): void => {
    const chosen = event.target.files?.[0];
    if (!chosen) return;
    setName(chosen.name.replace(/\.[^.]*$/, ""));
    chosen.text().then(setText, (problem: Error) => setError(problem.message));
  };
  const submit = (): void => {
    if (found) {
      if (keep(found.document as Json)) go("/editor");
      else setError("The browser cannot keep the draft: its storage is full or blocked.");
      return;
    }
    if (!text.trim() || busy) return;
    setBusy(true);
    setError(null);
    convert(text, format, name, stubs)
      .then(setFound, (problem: Error) => setError(problem.message))
      .finally(() => setBusy(false));
  };
  return (
    <Dialog
      wide
      title={
        found
          ? `Imported from ${FORMATS.find(([id]) => id === found.format)?.[1] ?? found.format}`
          : "Import a workflow"
      }
      lead={
        found ? (
          <Verdict found={found} />
        ) : (
          "From n8n, AWS Step Functions or a canvas document, as JSON or YAML. Nothing is stored until you publish it."
        )
      }
      onClose={onClose}
      onSubmit={submit}
      foot={
        <>
          {found && <Button onClick={() => setFound(null)}>Back</Button>}
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="primary" disabled={busy || (!found && !text.trim())}>
            {found ? "Open in the editor" : "Import"}
          </Button>
        </>
      }
    >
      {found ? (
        <Report found={found} />
      ) : (
        <>
          <div className="row wrap">
            <input ref={file} type="file" hidden accept=".json,.yaml,.yml" aria-label="File" onChange={choose} />
            <Button icon={FileUp} onClick={() => file.current?.click()}>
              Choose a file
            </Button>
            {name && <span className="dim">{name}</span>}
          </div>
          <Field label="Document" hint="The export of the other tool, as text.">
            {(ids) => (
              <textarea
                {...ids}
                className="textarea"
                rows={10}
                spellCheck={false}
                value={text}
                onChange={(event) => setText(event.target.value)}
              />
            )}
          </Field>
          <Field label="Format">
            {(ids) => (
              <Select {...ids} value={format} onChange={(event) => setFormat(event.target.value)}>
                {FORMATS.map(([id, title]) => (
                  <option key={id} value={id}>
                    {title}
                  </option>
                ))}
              </Select>
            )}
          </Field>
          <label className="row">
            <input
              type="checkbox"
              className="check"
              checked={stubs}
              onChange={(event) => setStubs(event.target.checked)}
            />
            Tasks of a state machine as custom nodes, with Python source to complete
          </label>
        </>
      )}
      {found && replaced && replaced.saved.text !== replaced.base.text && (
        <Notice state="waiting">
          The editor holds the draft of another new workflow; opening this one replaces it.
        </Notice>
      )}
      {error && (
        <Notice state="failed">
          <Sentence text={error} />
        </Notice>
      )}
    </Dialog>
  );
}

function Verdict({ found }: { found: Imported }): JSX.Element {
  if (found.complete) return <>Everything was carried over and the workflow is valid.</>;
  const rest = found.entries.filter((each) => each.status !== "carried").length;
  return (
    <>
      {plural(found.entries.length, "element")}, of which {count(rest)} {rest === 1 ? "needs" : "need"} a look;{" "}
      {plural(found.problems.length, "problem")} in the new workflow.
    </>
  );
}

/** What became of each element: first what needs work, what was carried on request. */
function Report({ found }: { found: Imported }): JSX.Element {
  const [shown, setShown] = useState<string | null>(null);
  const test = useMemo(() => pinnedTest(found), [found]);
  const present = STATUSES.filter(([status]) => (found.counts[status] ?? 0) > 0);
  const entries = STATUSES.flatMap(([status]) =>
    (shown === null ? status !== "carried" : shown === status)
      ? found.entries.filter((each) => each.status === status)
      : [],
  );
  return (
    <>
      <div className="chips" role="group" aria-label="Outcome">
        {present.map(([status, word, state]) => (
          <button
            key={status}
            type="button"
            className="chip"
            data-state={state}
            aria-pressed={shown === status}
            onClick={() => setShown(shown === status ? null : status)}
          >
            {word} <b className="tabular">{count(found.counts[status] ?? 0)}</b>
          </button>
        ))}
      </div>
      {entries.length > 0 && (
        <ul className="import-report" aria-label="What became of each element" tabIndex={0}>
          {entries.map((each, at) => (
            <Line key={at} entry={each} />
          ))}
        </ul>
      )}
      {found.problems.length > 0 && (
        <ul className="import-report" aria-label="Problems of the new workflow" tabIndex={0}>
          {found.problems.map((each, at) => (
            <li key={at} data-state={each.severity === "warning" ? "waiting" : "failed"}>
              <span>
                <Sentence text={each.message} /> {each.path && <code className="dim">{each.path}</code>}
              </span>
            </li>
          ))}
        </ul>
      )}
      {found.stubs && (
        <MadeFile title="Custom nodes to complete" content="Python source" text={found.stubs}>
          <CopyButton text={found.stubs} label="Copy the Python source" />
        </MadeFile>
      )}
      {test && (
        <MadeFile title="Test with the pinned data" content="Test" text={test.text}>
          <CopyButton text={test.text} label="Copy the test" />
          <DownloadText {...test} label={`Download ${test.name}`} />
          <span className="dim push">
            Run it with <code>rune test {test.name}</code>
          </span>
        </MadeFile>
      )}
    </>
  );
}

/** A file that was made by the import. */
function MadeFile({
  title,
  content,
  text,
  children,
}: {
  title: string;
  content: string;
  text: string;
  children: ReactNode;
}): JSX.Element {
  return (
    <section className="stack import-file" aria-label={title}>
      <div className="row">
        <b>{title}</b>
        {children}
      </div>
      <pre className="import-text" role="group" tabIndex={0} aria-label={content}>
        {text}
      </pre>
    </section>
  );
}

function Line({ entry }: { entry: Entry }): JSX.Element {
  const [, word, state] = STATUSES.find(([status]) => status === entry.status) ?? STATUSES[0];
  return (
    <li data-state={state}>
      <span className="tag">{word}</span>
      <span>
        <code>{entry.source || "document"}</code>
        {entry.target && (
          <>
            {" → "}
            <code>{entry.target}</code>
          </>
        )}
        {entry.message && (
          <>
            : <Sentence text={entry.message} />
          </>
        )}
        {entry.hint && (
          <span className="dim">
            {" "}
            <Sentence text={entry.hint} />
          </span>
        )}
      </span>
    </li>
  );
}
