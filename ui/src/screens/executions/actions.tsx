/** Actions on one execution. Each dialog makes its idempotency key when it opens, so that a double click acts once. */
import { useState, type JSX } from "react";
import { api, read, type ExecutionDetail } from "../../api/client";
import { Button, Field, Input, Rejected } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { plural } from "../../parts/format";
import { JsonField, parseJson } from "../../forms/json_field";
import { Foot, useAct } from "./act";
import { RerunDialog } from "./rerun";

/** The failed items of a split that a filter selects, within an item of a split around it. */
export type ChosenItems = { split: string; item: string; code: string; count: number };

export type Act =
  | { kind: "retry" | "cancel" }
  | { kind: "retry_items"; only?: ChosenItems }
  | { kind: "rerun"; node: string; item: string | null }
  | { kind: "signal"; name: string; item: string | null };

export function ActionDialog({
  act,
  execution,
  onClose,
}: {
  act: Act;
  execution: ExecutionDetail;
  onClose: () => void;
}): JSX.Element {
  switch (act.kind) {
    case "cancel":
      return <CancelDialog execution={execution} onClose={onClose} />;
    case "rerun":
      return <RerunDialog execution={execution} node={act.node} item={act.item} onClose={onClose} />;
    case "signal":
      return <SignalDialog execution={execution} name={act.name} item={act.item} onClose={onClose} />;
    default:
      return (
        <RetryDialog
          execution={execution}
          items={act.kind === "retry_items"}
          only={act.kind === "retry_items" ? act.only : undefined}
          onClose={onClose}
        />
      );
  }
}

function RetryDialog({
  execution,
  items,
  only,
  onClose,
}: {
  execution: ExecutionDetail;
  items: boolean;
  only: ChosenItems | undefined;
  onClose: () => void;
}): JSX.Element {
  const { key, busy, error, run } = useAct(execution, onClose);
  const failed = only?.count ?? execution.failed_items ?? 0;
  const chosen = only ? { split: only.split, code: only.code, ...(only.item ? { item: only.item } : {}) } : {};
  return (
    <Dialog
      title={
        items ? `Retry ${plural(failed, "failed item")}${only ? ` with ${only.code}` : ""}` : "Retry this execution"
      }
      lead={
        items
          ? `A new execution runs ${only ? "these items" : "the failed items"} again and keeps the results of all others.`
          : "A new execution runs what failed, and all nodes after it. Results of nodes that succeeded are kept."
      }
      onClose={onClose}
      foot={
        <Foot onClose={onClose} busy={busy}>
          <Button
            kind="primary"
            disabled={busy}
            onClick={() =>
              run(async () => {
                const started = await read(
                  api.POST("/api/v1/executions/{execution}/retry", {
                    params: { path: { execution: execution.execution_id }, header: { "Idempotency-Key": key } },
                    body: { failed_items: items, ...chosen },
                  }),
                );
                return { text: `Retried as ${started.execution_id}.`, to: started.execution_id };
              })
            }
          >
            Retry
          </Button>
        </Foot>
      }
    >
      <Rejected error={error} />
    </Dialog>
  );
}

function CancelDialog({ execution, onClose }: { execution: ExecutionDetail; onClose: () => void }): JSX.Element {
  const { busy, error, run } = useAct(execution, onClose);
  const [reason, setReason] = useState("");
  return (
    <Dialog
      title={`Cancel ${execution.workflow_id}?`}
      lead={`${execution.execution_id} ends now. Running nodes are stopped and no others start. A cancelled execution can be retried.`}
      onClose={onClose}
      foot={
        <Foot onClose={onClose} busy={busy}>
          <Button
            kind="danger"
            disabled={busy}
            onClick={() =>
              run(async () => {
                const { status } = await read(
                  api.POST("/api/v1/executions/{execution}/cancel", {
                    params: { path: { execution: execution.execution_id } },
                    body: { reason },
                  }),
                );
                return {
                  text: status === "cancelled" ? "Cancelled." : `It had already ended with the status ${status}.`,
                };
              })
            }
          >
            Cancel the execution
          </Button>
        </Foot>
      }
    >
      <Field label="Reason" hint="Stored with the end of the execution.">
        {(ids) => (
          <Input {...ids} value={reason} maxLength={2000} onChange={(event) => setReason(event.target.value)} />
        )}
      </Field>
      <Rejected error={error} />
    </Dialog>
  );
}

function SignalDialog({
  execution,
  name,
  item,
  onClose,
}: {
  execution: ExecutionDetail;
  name: string;
  item: string | null;
  onClose: () => void;
}): JSX.Element {
  const { key, busy, error, run } = useAct(execution, onClose);
  const [signal, setSignal] = useState(name);
  const [text, setText] = useState("{}");
  const parsed = parseJson(text);
  return (
    <Dialog
      title={`Send ${signal ? `the signal ${signal}` : "a signal"}`}
      lead={item ? `To the node that waits in ${item}.` : "To the node that waits for it, now or later."}
      onClose={onClose}
      foot={
        <Foot onClose={onClose} busy={busy}>
          <Button
            kind="primary"
            disabled={busy || !parsed.ok || signal === ""}
            onClick={() =>
              run(async () => {
                const heard = await read(
                  api.POST("/api/v1/executions/{execution}/signals", {
                    params: { path: { execution: execution.execution_id }, header: { "Idempotency-Key": key } },
                    body: { name: signal, value: parsed.ok ? parsed.value : null, ...(item ? { item } : {}) } as never,
                  }),
                );
                return {
                  text: heard.resumed ? "Delivered; the execution continues." : "Stored until a node waits for it.",
                };
              })
            }
          >
            Send
          </Button>
        </Foot>
      }
    >
      {name === "" && (
        <Field label="Name" required>
          {(ids) => <Input {...ids} value={signal} onChange={(event) => setSignal(event.target.value)} />}
        </Field>
      )}
      <JsonField label="Value" value={text} onChange={setText} hint="The output of the node that waits." />
      <Rejected error={error} />
    </Dialog>
  );
}
