/** Messages of the queues that no worker could process, with their bodies. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { MailCheck, RotateCcw, Trash2 } from "lucide-react";
import { useState, type JSX } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { useRight } from "../../api/rights";
import { Ago, Blank, Button, CopyButton, IconButton } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { ErrorCode } from "../../parts/error_code";
import { plural } from "../../parts/format";
import { Answered } from "../../parts/reading";
import { TableCard, type Column } from "../../parts/table";
import { say } from "../../parts/toasts";

type Message = Schemas["DeadMessageView"];

export function DeadMessages(): JSX.Element {
  const client = useQueryClient();
  const right = useRight("run");
  const [shown, setShown] = useState<Message | null>(null);
  const [dropping, setDropping] = useState<Message | null>(null);
  const messages = useQuery({
    queryKey: ["dead-messages"],
    queryFn: async () => (await read(api.GET("/api/v1/dead-messages"))).dead_messages,
    refetchInterval: 10_000,
  });
  const refresh = (): void => void client.invalidateQueries({ queryKey: ["dead-messages"] });
  const requeue = (each: Message): void => {
    read(api.POST("/api/v1/dead-messages/{message}/requeue", { params: { path: { message: each.id } } })).then(
      ({ count, queue }) => {
        say("success", `${plural(count, "message")} sent to ${queue} again.`);
        refresh();
      },
      (error: Error) => say("failed", error.message),
    );
  };
  const columns: Column<Message>[] = [
    { title: "Queue", cell: (each) => <code>{each.queue}</code> },
    {
      title: "Workflow",
      cell: (each) =>
        each.execution_id ? (
          <Link href={`/executions/${each.execution_id}`}>{each.workflow_id ?? each.execution_id}</Link>
        ) : (
          <span className="dim">unknown</span>
        ),
    },
    { title: "Node", cell: (each) => (each.node_id ? <code>{each.node_id}</code> : <span className="dim">–</span>) },
    {
      title: "Error",
      cell: (each) => (
        <>
          <ErrorCode code={each.code} className="error-line" /> {each.message}
        </>
      ),
    },
    { title: "When", cell: (each) => <Ago at={each.at} /> },
    {
      title: "Actions",
      untitled: true,
      cell: (each) => (
        <span className="row" style={{ justifyContent: "flex-end" }}>
          <Button size="small" onClick={() => setShown(each)}>
            Show
          </Button>
          <Button
            size="small"
            icon={RotateCcw}
            disabled={!right.allowed}
            title={right.reason}
            onClick={() => requeue(each)}
          >
            Requeue
          </Button>
          <IconButton
            size="small"
            icon={Trash2}
            label="Discard"
            disabled={!right.allowed}
            onClick={() => setDropping(each)}
          />
        </span>
      ),
    },
  ];
  return (
    <>
      <TableCard
        label="Table of dead messages"
        query={messages}
        rows={messages.data}
        skeleton={{ rows: 5, height: 24 }}
        blank={
          <Blank icon={MailCheck} title="No dead messages">
            Messages that cannot be decoded or were delivered too often appear here.
          </Blank>
        }
        columns={columns}
        keyOf={(each) => each.id}
      />
      {shown && <Body message={shown} onClose={() => setShown(null)} />}
      {dropping && (
        <Dialog
          title="Discard this message?"
          lead={`A message of the queue ${dropping.queue}. Identical messages are discarded with it. This cannot be undone.`}
          onClose={() => setDropping(null)}
          foot={
            <>
              <Button onClick={() => setDropping(null)}>Close</Button>
              <Button
                kind="danger"
                onClick={() => {
                  read(
                    api.DELETE("/api/v1/dead-messages/{message}", { params: { path: { message: dropping.id } } }),
                  ).then(
                    () => {
                      say("success", "Discarded.");
                      refresh();
                    },
                    (error: Error) => say("failed", error.message),
                  );
                  setDropping(null);
                }}
              >
                Discard
              </Button>
            </>
          }
        />
      )}
    </>
  );
}

function Body({ message, onClose }: { message: Message; onClose: () => void }): JSX.Element {
  const detail = useQuery({
    queryKey: ["dead-messages", message.id],
    queryFn: () => read(api.GET("/api/v1/dead-messages/{message}", { params: { path: { message: message.id } } })),
  });
  return (
    <Dialog
      title="Message"
      lead={`${message.code}: ${message.message}`}
      onClose={onClose}
      foot={<Button onClick={onClose}>Close</Button>}
    >
      <Answered query={detail} skeleton={{ rows: 4 }} retries={false}>
        {({ body }) => (
          <>
            <pre className="code" role="group" tabIndex={0} aria-label="Body of the message">
              {body}
            </pre>
            <CopyButton text={body} label="Copy the body" />
          </>
        )}
      </Answered>
    </Dialog>
  );
}
