/** Webhooks and schedules. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { CalendarClock, RotateCw, Webhook } from "lucide-react";
import { useState, type JSX, type ReactNode } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { useTriggers } from "../../api/queries";
import { useRight } from "../../api/rights";
import { Ago, Blank, Button, CopyButton, Notice, Rejected, Switch } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { absolute, duration } from "../../parts/format";
import { Listed } from "../../parts/reading";
import { say } from "../../parts/toasts";
import { Head } from "../shell/shell";

type Trigger = Schemas["TriggerView"];

export function TriggersScreen(): JSX.Element {
  const triggers = useTriggers();
  return (
    <div className="screen">
      <Head title="Triggers" lead="Webhooks and schedules that start executions." />
      <Listed
        query={triggers}
        rows={triggers.data}
        skeleton={{ rows: 5, height: 40 }}
        blank={
          <div className="card">
            <Blank icon={Webhook} title="No triggers">
              A workflow with a node of type webhook or schedule appears here once it is deployed.
            </Blank>
          </div>
        }
      >
        {(rows) => (
          <div className="stack">
            {rows.map((each) => (
              <TriggerCard key={each.id} trigger={each} named />
            ))}
          </div>
        )}
      </Listed>
    </div>
  );
}

function Rhythm({ schedule }: { schedule: NonNullable<Trigger["schedule"]> }): ReactNode {
  if (schedule.cron) return <code>{schedule.cron}</code>;
  return schedule.every_ms ? `every ${duration(schedule.every_ms)}` : "–";
}

export function TriggerCard({ trigger, named = false }: { trigger: Trigger; named?: boolean }): JSX.Element {
  const client = useQueryClient();
  const right = useRight("edit");
  const [rotating, setRotating] = useState(false);
  const [busy, setBusy] = useState(false);
  const { webhook, schedule } = trigger;
  const url = webhook?.path ? `${window.location.origin}${webhook.path}` : null;
  const method = webhook?.method === "ANY" || !webhook ? "POST" : webhook.method;
  const curl = url ? `curl -X ${method} ${url} -H 'Content-Type: application/json' -d '{}'` : "";
  const enable = (on: boolean): void => {
    setBusy(true);
    const params = { path: { trigger: trigger.id } };
    read(
      on
        ? api.POST("/api/v1/triggers/{trigger}/enable", { params })
        : api.POST("/api/v1/triggers/{trigger}/disable", { params }),
    )
      .then(
        () => say("success", on ? "Enabled. Missed starts are not caught up." : "Disabled."),
        (error: Error) => say("failed", error.message),
      )
      .finally(() => {
        setBusy(false);
        void client.invalidateQueries({ queryKey: ["triggers"] });
      });
  };
  const Icon = webhook ? Webhook : CalendarClock;
  return (
    <section className="card" aria-label={`Trigger ${trigger.node_id} of ${trigger.workflow_id}`}>
      <div className="card-head">
        <Icon size={16} aria-hidden="true" />
        <h2 className="clip">
          {named && (
            <>
              <Link href={`/workflows/${trigger.workflow_id}`} className="plain">
                {trigger.workflow_id}
              </Link>{" "}
              ·{" "}
            </>
          )}
          {trigger.node_id}
        </h2>
        <span className="dim">{trigger.kind}</span>
        <span className="push row" title={right.reason}>
          <Switch
            checked={trigger.enabled}
            disabled={busy || !right.allowed}
            label={`Enable ${trigger.node_id}`}
            onChange={enable}
          />
        </span>
      </div>
      <div className="card-body stack" style={{ gap: 12 }}>
        {webhook && (
          <>
            <dl className="facts">
              <dt>URL</dt>
              <dd>
                {url ? (
                  <span className="row" style={{ gap: 4 }}>
                    <code>{url}</code>
                    <CopyButton text={url} label="Copy the URL" />
                  </span>
                ) : (
                  <span className="dim">hidden; needs the role runner</span>
                )}
              </dd>
              <dt>Method</dt>
              <dd>{webhook.method}</dd>
              <dt>Authentication</dt>
              <dd>
                {webhook.auth}
                {webhook.secret !== "none" && ` (secret: ${webhook.secret})`}
              </dd>
              <dt>Responds</dt>
              <dd>{webhook.respond}</dd>
            </dl>
            <div className="row wrap">
              {curl && (
                <span className="row">
                  <CopyButton text={curl} label="Copy as curl" />
                  <span className="dim">Copy as curl</span>
                </span>
              )}
              <span className="push">
                <Button
                  size="small"
                  icon={RotateCw}
                  disabled={!right.allowed}
                  title={right.reason}
                  onClick={() => setRotating(true)}
                >
                  Rotate
                </Button>
              </span>
            </div>
          </>
        )}
        {schedule && (
          <dl className="facts">
            <dt>Schedule</dt>
            <dd>
              <Rhythm schedule={schedule} />
            </dd>
            <dt>Time zone</dt>
            <dd>{schedule.timezone}</dd>
            <dt>Next</dt>
            <dd>
              {schedule.next_at ? (
                <Ticks schedule={schedule} next={schedule.next_at} />
              ) : (
                <span className="dim">not due</span>
              )}
            </dd>
            <dt>Overlap</dt>
            <dd>
              {schedule.overlap}, catch-up {schedule.catch_up}
              {schedule.waiting > 0 && `, ${schedule.waiting} waiting`}
            </dd>
            {schedule.last_execution_id && (
              <>
                <dt>Last run</dt>
                <dd>
                  <Link href={`/executions/${schedule.last_execution_id}`}>{schedule.last_execution_id}</Link>
                </dd>
              </>
            )}
          </dl>
        )}
        {schedule?.trouble && <Notice state="failed">{schedule.trouble}</Notice>}
      </div>
      {rotating && <RotateDialog trigger={trigger} onClose={() => setRotating(false)} />}
    </section>
  );
}

const TICKS = 5;

/** The next times of a schedule: those of a cron expression are computed by the server. */
function Ticks({ schedule, next }: { schedule: NonNullable<Trigger["schedule"]>; next: string }): JSX.Element {
  const { cron, timezone, every_ms: every } = schedule;
  const preview = useQuery({
    queryKey: ["ticks", cron, timezone, next],
    queryFn: async () =>
      (await read(api.POST("/api/v1/schedules/preview", { body: { cron, timezone, count: TICKS } as never }))).ticks,
    enabled: cron !== null,
    staleTime: Infinity,
  });
  const first = Date.parse(next);
  const ticks =
    cron === null
      ? Array.from({ length: TICKS }, (_, index) => new Date(first + index * (every ?? 0)).toISOString())
      : (preview.data ?? [next]);
  return (
    <ol className="ticks" aria-label="Next starts">
      {ticks.map((each) => (
        <li key={each}>
          <Ago at={each} /> <span className="dim">{absolute(Date.parse(each))}</span>
        </li>
      ))}
    </ol>
  );
}

function RotateDialog({ trigger, onClose }: { trigger: Trigger; onClose: () => void }): JSX.Element {
  const client = useQueryClient();
  const [error, setError] = useState<Error | null>(null);
  const [made, setMade] = useState<Schemas["RotatedView"] | null>(null);
  const [busy, setBusy] = useState(false);
  const rotate = (secret: boolean): void => {
    setBusy(true);
    read(
      api.POST("/api/v1/triggers/{trigger}/rotate", { params: { path: { trigger: trigger.id } }, body: { secret } }),
    ).then(
      (found) => {
        setMade(found);
        setError(null);
        void client.invalidateQueries({ queryKey: ["triggers"] });
      },
      (problem: Error) => {
        setError(problem);
        setBusy(false);
      },
    );
  };
  return (
    <Dialog
      title="Rotate the webhook"
      lead="The old path or secret is invalid from then on; callers need the new one."
      onClose={onClose}
      foot={
        made ? (
          <Button kind="primary" onClick={onClose}>
            Done
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Close</Button>
            <Button kind="danger" disabled={busy} onClick={() => rotate(false)}>
              New path
            </Button>
            <Button kind="danger" disabled={busy} onClick={() => rotate(true)}>
              New secret
            </Button>
          </>
        )
      }
    >
      <Rejected error={error} />
      {made && (
        <Notice state="success">
          {made.new_secret ? (
            <>
              <p>The new secret is shown only now:</p>
              <span className="row">
                <code>{made.new_secret}</code>
                <CopyButton text={made.new_secret} label="Copy the secret" />
              </span>
            </>
          ) : (
            <p>
              The new path is <code>{made.webhook?.path}</code>.
            </p>
          )}
        </Notice>
      )}
    </Dialog>
  );
}
