/** Actions on many executions: the selected ones, or all that match the filter of the list. A stored job does the work. */
import { useQuery } from "@tanstack/react-query";
import { CircleStop, ListRestart, MailCheck, Pause, Play, RotateCcw, X } from "lucide-react";
import { useState, type JSX } from "react";
import { Link } from "wouter";
import { api, newKey, read, type ExecutionView, type Schemas } from "../../api/client";
import { useRight } from "../../api/rights";
import { Button, Field, IconButton, Input, Notice } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { count, plural } from "../../parts/format";
import { Answered } from "../../parts/reading";
import { StateBar, stateWord } from "../../parts/state";
import { JobProgress } from "./bulk_jobs";
import { MAX_BULK, MAX_IDS, PAST, TITLES, bulkFilter, canApply, type BulkAction } from "./bulk_actions";
import type { Filter } from "./filter";

type Job = Schemas["BulkView"];

const BUTTONS: [BulkAction, typeof Play][] = [
  ["retry", RotateCcw],
  ["retry_failed_items", ListRestart],
  ["pause", Pause],
  ["resume", Play],
  ["cancel", CircleStop],
  ["requeue", MailCheck],
];
const NOTES: Record<BulkAction, string> = {
  retry: "Each retry is a new execution that keeps the results of the nodes that succeeded.",
  retry_failed_items:
    "Each retry is a new execution that runs the failed items again and keeps the results of all others.",
  cancel: "Running nodes are stopped. A cancelled execution can be retried.",
  pause: "Running nodes finish; no new ones start until it is resumed.",
  resume: "Executions continue where they were paused.",
  requeue: "Dead letters are put back into the queue as new executions.",
};

/** Executions by status; *failed* includes *halted*. */
function byStatus({ failed = 0, halted = 0, ...rest }: Record<string, number>): Record<string, number> {
  return failed + halted > 0 ? { ...rest, failed: failed + halted } : rest;
}

export function BulkBar({
  ids,
  rows,
  all,
  filter,
  onAll,
  onClear,
  onDone,
}: {
  ids: string[];
  rows: ExecutionView[];
  /** Whether everything that matches the filter is meant, not only the rows that are selected. */
  all: boolean;
  filter: Filter;
  onAll: () => void;
  onClear: () => void;
  onDone: () => void;
}): JSX.Element {
  const [action, setAction] = useState<BulkAction | null>(null);
  const right = useRight("run");
  const known = new Map(rows.map((each) => [each.execution_id, each]));
  const can = (each: BulkAction): number => ids.filter((id) => canApply(each, known.get(id))).length;
  const matching = bulkFilter(filter, Date.now());
  const many = !all && ids.length > MAX_IDS;
  const denied =
    right.reason ??
    (many ? `At most ${count(MAX_IDS)} executions can be selected one by one; select all that match.` : undefined);
  return (
    <div className="bulk" role="toolbar" aria-label="Actions on the selection">
      <span className="tabular">
        {all ? "All that match the filter" : `${plural(ids.length, "execution")} selected`}
      </span>
      {!all && (
        <Button kind="quiet" disabled={!matching.ok} title={matching.ok ? undefined : matching.reason} onClick={onAll}>
          Select all that match
        </Button>
      )}
      {BUTTONS.map(([each, Icon]) => (
        <Button
          key={each}
          icon={Icon}
          disabled={!right.allowed || many || (!all && can(each) === 0)}
          title={denied}
          onClick={() => setAction(each)}
        >
          {TITLES[each]} {!all && can(each) > 0 && can(each)}
        </Button>
      ))}
      <IconButton icon={X} label="Clear the selection" onClick={onClear} />
      {action && (
        <BulkDialog
          action={action}
          selection={all && matching.ok ? { filter: matching.filter, limit: MAX_BULK } : { ids, limit: MAX_BULK }}
          onClose={() => setAction(null)}
          onDone={onDone}
        />
      )}
    </div>
  );
}

type Selection = { ids: string[]; limit: number } | { filter: Schemas["BulkFilter"]; limit: number };

/** Counts first, then acts once: the job is created under a key that was made when the dialog opened. */
function BulkDialog({
  action,
  selection,
  onClose,
  onDone,
}: {
  action: BulkAction;
  selection: Selection;
  onClose: () => void;
  onDone: () => void;
}): JSX.Element {
  const [key] = useState(newKey);
  const [chosen] = useState(selection);
  const [job, setJob] = useState<Job | null>(null);
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const preview = useQuery({
    queryKey: ["bulk-preview", key],
    queryFn: () => read(api.POST("/api/v1/bulk/preview", { body: { action, ...chosen } as never })),
    staleTime: Infinity,
    retry: false,
  });
  const run = (): void => {
    setBusy(true);
    setError(null);
    read(
      api.POST("/api/v1/bulk", {
        params: { header: { "Idempotency-Key": key } },
        body: { action, reason, ...chosen } as never,
      }),
    ).then(setJob, (problem: Error) => {
      setError(problem);
      setBusy(false);
    });
  };
  if (job) {
    return (
      <Dialog
        title={`${TITLES[action]} ${plural(job.total, "execution")}`}
        lead="The job continues on the server when this page is closed."
        onClose={onDone}
        foot={
          <>
            <Link className="button" href={`/bulk/${job.id}`}>
              Open the job
            </Link>
            <Button kind="primary" onClick={onDone}>
              Done
            </Button>
          </>
        }
      >
        <JobProgress job={job} />
      </Dialog>
    );
  }
  const found = preview.data;
  const eligible = found?.eligible ?? 0;
  return (
    <Dialog
      title={found ? `${TITLES[action]} ${plural(eligible, "execution")}` : TITLES[action]}
      lead={NOTES[action]}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button kind={action === "cancel" ? "danger" : "primary"} disabled={busy || eligible === 0} onClick={run}>
            {TITLES[action]} {found && count(eligible)}
          </Button>
        </>
      }
    >
      <Answered query={preview} skeleton={{ rows: 2, height: 14 }}>
        {(selected) => (
          <>
            <p>
              {plural(selected.total, "execution")} selected
              {selected.more && `, the newest of more; one job takes ${count(MAX_BULK)} at most`}.{" "}
              {eligible < selected.total &&
                `${count(selected.total - eligible)} cannot be ${PAST[action]} in their current status.`}
            </p>
            <StateBar counts={byStatus(selected.by_status)} total={selected.total} />
            <p className="dim">
              {Object.entries(byStatus(selected.by_status))
                .map(([status, many]) => `${count(many)} ${stateWord(status)}`)
                .join(" · ")}
            </p>
            {action === "cancel" && (
              <Field label="Reason" hint="Stored with the end of each execution.">
                {(given) => (
                  <Input
                    {...given}
                    value={reason}
                    maxLength={2000}
                    onChange={(event) => setReason(event.target.value)}
                  />
                )}
              </Field>
            )}
          </>
        )}
      </Answered>
      {error && <Notice state="failed">{error.message}</Notice>}
    </Dialog>
  );
}
