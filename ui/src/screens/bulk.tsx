/** Actions on the selected executions, with the outcome of each. */
import { CircleStop, Pause, Play, RotateCcw, X } from "lucide-react";
import { useState, type JSX } from "react";
import { Link } from "wouter";
import { api, newKey, read, type ExecutionView } from "../api/client";
import { useRight } from "../api/rights";
import { ENDED } from "../live/store";
import { Button, IconButton } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { plural, shortId } from "../parts/format";
import { StateGlyph } from "../parts/state";

type Action = "retry" | "cancel" | "pause" | "resume";
type Outcome = { id: string; ok: boolean; text: string; to?: string };

const TITLES: Record<Action, string> = { retry: "Retry", cancel: "Cancel", pause: "Pause", resume: "Resume" };
const AT_ONCE = 6;

/** Whether an action can apply to an execution in this status. */
export function applies(action: Action, status: string): boolean {
  const over = ENDED.has(status);
  if (action === "retry") return over && status !== "completed";
  if (action === "pause") return !over && status !== "paused";
  if (action === "resume") return status === "paused";
  return !over;
}

async function act(action: Action, id: string, key: string): Promise<Outcome> {
  const path = { execution: id };
  try {
    if (action === "retry") {
      const started = await read(
        api.POST("/api/v1/executions/{execution}/retry", {
          params: { path, header: { "Idempotency-Key": `${key}-${id}`.slice(0, 128) } },
          body: { failed_items: false },
        }),
      );
      return { id, ok: true, text: "retried as", to: started.execution_id };
    }
    if (action === "cancel") {
      const { status } = await read(api.POST("/api/v1/executions/{execution}/cancel", { params: { path }, body: { reason: "" } }));
      return { id, ok: true, text: status };
    }
    if (action === "pause") await read(api.POST("/api/v1/executions/{execution}/pause", { params: { path } }));
    else await read(api.POST("/api/v1/executions/{execution}/resume", { params: { path } }));
    return { id, ok: true, text: action === "pause" ? "paused" : "resumed" };
  } catch (error) {
    return { id, ok: false, text: (error as Error).message };
  }
}

export function BulkBar({ ids, rows, onClear, onDone }: { ids: string[]; rows: ExecutionView[]; onClear: () => void; onDone: () => void }): JSX.Element {
  const [action, setAction] = useState<Action | null>(null);
  const right = useRight("run");
  const status = new Map(rows.map((each) => [each.execution_id, each.status]));
  const can = (each: Action): string[] => ids.filter((id) => applies(each, status.get(id) ?? "running"));
  const buttons: [Action, typeof Play][] = [
    ["retry", RotateCcw],
    ["pause", Pause],
    ["resume", Play],
    ["cancel", CircleStop],
  ];
  return (
    <div className="bulk" role="toolbar" aria-label="Actions on the selection">
      <span className="tabular">{plural(ids.length, "execution")} selected</span>
      {buttons.map(([each, Icon]) => (
        <Button key={each} icon={Icon} disabled={!right.allowed || can(each).length === 0} title={right.reason} onClick={() => setAction(each)}>
          {TITLES[each]} {can(each).length > 0 && can(each).length}
        </Button>
      ))}
      <IconButton icon={X} label="Clear the selection" onClick={onClear} />
      {action && <BulkDialog action={action} ids={can(action)} of={ids.length} onClose={() => setAction(null)} onDone={onDone} />}
    </div>
  );
}

function BulkDialog({ action, ids, of, onClose, onDone }: { action: Action; ids: string[]; of: number; onClose: () => void; onDone: () => void }): JSX.Element {
  const [key] = useState(newKey);
  const [outcomes, setOutcomes] = useState<Outcome[] | null>(null);
  const [busy, setBusy] = useState(false);
  const run = async (): Promise<void> => {
    setBusy(true);
    const found: Outcome[] = [];
    const open = [...ids];
    const lane = async (): Promise<void> => {
      for (let id = open.shift(); id !== undefined; id = open.shift()) {
        found.push(await act(action, id, key));
        setOutcomes([...found]);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
    setBusy(false);
  };
  const over = outcomes !== null && !busy;
  const close = over ? onDone : onClose;
  return (
    <Dialog
      title={`${TITLES[action]} ${plural(ids.length, "execution")}`}
      lead={ids.length < of ? `${of - ids.length} of the ${of} selected cannot be ${action === "retry" ? "retried" : `${action}ed`} in their present status.` : undefined}
      onClose={close}
      foot={
        over ? (
          <Button kind="primary" onClick={close}>
            Done
          </Button>
        ) : (
          <>
            <Button onClick={close} disabled={busy}>
              Keep them as they are
            </Button>
            <Button kind={action === "cancel" ? "danger" : "primary"} disabled={busy} onClick={() => void run()}>
              {busy ? `${outcomes?.length ?? 0} of ${ids.length}` : TITLES[action]}
            </Button>
          </>
        )
      }
    >
      {outcomes === null ? (
        <p className="dim">
          {action === "retry" && "Each starts a new execution that keeps the results of the nodes that succeeded."}
          {action === "cancel" && "Running nodes are stopped. A cancelled execution can be retried."}
          {action === "pause" && "Running nodes finish; no new ones start until it is resumed."}
          {action === "resume" && "They continue where they were paused."}
        </p>
      ) : (
        <ul className="outcomes" aria-live="polite">
          {outcomes.map((each) => (
            <li key={each.id} className="row">
              <StateGlyph state={each.ok ? "success" : "failed"} />
              <code>{shortId(each.id)}</code>
              <span style={{ overflowWrap: "anywhere" }}>
                {each.text} {each.to && <Link href={`/executions/${each.to}`}>{shortId(each.to)}</Link>}
              </span>
            </li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}
