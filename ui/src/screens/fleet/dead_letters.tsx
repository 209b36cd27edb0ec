/** Executions that could not be continued. */
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { MailCheck, RotateCcw, Trash2 } from "lucide-react";
import { useState, type JSX } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { useRight } from "../../api/rights";
import { Ago, Blank, Button, IconButton } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { ErrorCode } from "../../parts/error_code";
import { TableCard, type Column } from "../../parts/table";
import { say } from "../../parts/toasts";
import { DeadMessages } from "./dead_messages";
import { Head } from "../shell/shell";
import { useQueryState } from "../shell/url";

type Letter = Schemas["DeadLetterView"];

const KINDS = [
  ["executions", "Executions"],
  ["messages", "Messages"],
] as const;

export function DeadLettersScreen(): JSX.Element {
  const [parameters, set] = useQueryState();
  const kind = parameters.get("kind") === "messages" ? "messages" : "executions";
  return (
    <div className="screen">
      <Head
        title="Dead letters"
        lead={
          kind === "executions"
            ? "Executions that could not be continued, for example because a message could not be processed."
            : "Messages of the queues that no worker could process."
        }
      >
        <div className="segments" role="group" aria-label="Kind of dead letter" style={{ alignSelf: "start" }}>
          {KINDS.map(([each, text]) => (
            <button
              key={each}
              type="button"
              aria-pressed={kind === each}
              onClick={() => set({ kind: each === "executions" ? null : each })}
            >
              {text}
            </button>
          ))}
        </div>
      </Head>
      {kind === "messages" ? <DeadMessages /> : <DeadExecutions />}
    </div>
  );
}

function DeadExecutions(): JSX.Element {
  const client = useQueryClient();
  const right = useRight("run");
  const [dropping, setDropping] = useState<Letter | null>(null);
  const letters = useInfiniteQuery({
    queryKey: ["dead-letters"],
    initialPageParam: "",
    queryFn: ({ pageParam }) =>
      read(
        api.GET("/api/v1/dead-letters", {
          params: { query: { limit: 100, ...(pageParam ? { cursor: pageParam } : {}) } },
        }),
      ),
    getNextPageParam: (page: Schemas["DeadLetterPage"]) => page.next ?? undefined,
  });
  const refresh = (): void => void client.invalidateQueries({ queryKey: ["dead-letters"] });
  const requeue = (letter: Letter): void => {
    read(api.POST("/api/v1/dead-letters/{letter}/requeue", { params: { path: { letter: letter.id } } })).then(
      (started) => {
        say("success", "Requeued.", { to: `/executions/${started.execution_id}`, text: "Open the new execution" });
        refresh();
      },
      (error: Error) => say("failed", error.message),
    );
  };
  const rows = letters.data?.pages.flatMap((page) => page.dead_letters) ?? [];
  const columns: Column<Letter>[] = [
    { title: "Workflow", cell: (each) => <Link href={`/executions/${each.execution_id}`}>{each.workflow_id}</Link> },
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
        label="Table of dead letters"
        query={letters}
        rows={rows}
        skeleton={{ rows: 5, height: 24 }}
        blank={
          <Blank icon={MailCheck} title="No dead letters">
            Executions that cannot be continued appear here.
          </Blank>
        }
        columns={columns}
        keyOf={(each) => each.id}
      />
      {letters.hasNextPage && <Button onClick={() => void letters.fetchNextPage()}>Show more</Button>}
      {dropping && (
        <Dialog
          title="Discard this dead letter?"
          lead={`${dropping.workflow_id}, ${dropping.execution_id}. The execution itself does not change, but it can no longer be requeued.`}
          onClose={() => setDropping(null)}
          foot={
            <>
              <Button onClick={() => setDropping(null)}>Close</Button>
              <Button
                kind="danger"
                onClick={() => {
                  read(api.DELETE("/api/v1/dead-letters/{letter}", { params: { path: { letter: dropping.id } } })).then(
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
