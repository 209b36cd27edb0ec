/** API keys. The secret of a new key is shown once. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, Plus } from "lucide-react";
import { useState, type JSX } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useRight } from "../../api/rights";
import { Ago, Blank, Button, CopyButton, Field, Input, Notice, Rejected, Select } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { TableCard, type Column } from "../../parts/table";
import { say } from "../../parts/toasts";
import { Head } from "../shell/shell";

type Key = Schemas["KeyView"];
const DAY_S = 86_400;
const LIVES: [string, number | null][] = [
  ["Never", null],
  ["After 1 day", DAY_S],
  ["After 30 days", 30 * DAY_S],
  ["After 1 year", 365 * DAY_S],
];
const ROLES: [string, string][] = [
  ["approver", "answers decisions, sees nothing else"],
  ["viewer", "reads everything"],
  ["runner", "also starts and controls executions"],
  ["editor", "also changes workflows"],
  ["admin", "also changes keys and credentials"],
];

export function KeysScreen(): JSX.Element {
  const client = useQueryClient();
  const right = useRight("admin");
  const keys = useQuery({ queryKey: ["keys"], queryFn: async () => (await read(api.GET("/api/v1/keys"))).keys });
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<Key | null>(null);
  const columns: Column<Key>[] = [
    {
      title: "Name",
      cell: (each) => (
        <span className="workflow-name">
          <b>{each.name}</b>
          <code className="dim">{each.id}</code>
        </span>
      ),
    },
    { title: "Role", cell: (each) => each.role },
    { title: "Workflows", cell: (each) => each.workflows.join(", ") || "all" },
    {
      title: "Limits",
      cell: (each) =>
        [each.limits.rate, each.limits.running && `${each.limits.running} running`].filter(Boolean).join(", ") || (
          <span className="dim">–</span>
        ),
    },
    {
      title: "Last used",
      cell: (each) => (each.used_at ? <Ago at={each.used_at} /> : <span className="dim">never</span>),
    },
    {
      title: "Expires",
      cell: (each) => (each.expires_at ? <Ago at={each.expires_at} /> : <span className="dim">never</span>),
    },
    {
      title: "Actions",
      untitled: true,
      style: { textAlign: "end" },
      cell: (each) =>
        each.revoked_at ? (
          <span className="dim">
            revoked <Ago at={each.revoked_at} />
          </span>
        ) : (
          <Button size="small" disabled={!right.allowed} title={right.reason} onClick={() => setRevoking(each)}>
            Revoke
          </Button>
        ),
    },
  ];
  return (
    <div className="screen">
      <Head
        title="API keys"
        lead="A key has a role and may be limited to some workflows. The server stores only a digest."
        actions={
          <Button
            kind="primary"
            icon={Plus}
            disabled={!right.allowed}
            title={right.reason}
            onClick={() => setCreating(true)}
          >
            Create a key
          </Button>
        }
      />
      <TableCard
        label="Table of keys"
        query={keys}
        rows={keys.data}
        skeleton={{ rows: 4, height: 24 }}
        blank={
          <Blank icon={KeyRound} title="No keys">
            Without keys, the server accepts requests from this machine only and needs no authentication. Create an
            admin key first; a key of any other role cannot open this page.
          </Blank>
        }
        columns={columns}
        keyOf={(each) => each.id}
      />
      {creating && <CreateDialog first={keys.data?.length === 0} onClose={() => setCreating(false)} />}
      {revoking && (
        <Dialog
          title={`Revoke ${revoking.name}?`}
          lead="Requests with this key are rejected from now on, and its event streams end. This cannot be undone."
          onClose={() => setRevoking(null)}
          foot={
            <>
              <Button onClick={() => setRevoking(null)}>Close</Button>
              <Button
                kind="danger"
                onClick={() => {
                  read(api.DELETE("/api/v1/keys/{id}", { params: { path: { id: revoking.id } } })).then(
                    () => {
                      say("success", `Revoked ${revoking.name}.`);
                      void client.invalidateQueries({ queryKey: ["keys"] });
                    },
                    (error: Error) => say("failed", error.message),
                  );
                  setRevoking(null);
                }}
              >
                Revoke
              </Button>
            </>
          }
        />
      )}
    </div>
  );
}

function CreateDialog({ first, onClose }: { first: boolean; onClose: () => void }): JSX.Element {
  const client = useQueryClient();
  const [name, setName] = useState("");
  // The keys may be read after the dialog was opened.
  const [chosen, setRole] = useState<string | null>(null);
  const role = chosen ?? (first ? "admin" : "viewer");
  const [workflows, setWorkflows] = useState("");
  const [life, setLife] = useState(0);
  const [made, setMade] = useState<string | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const create = (): void => {
    setBusy(true);
    const body = {
      name,
      role,
      workflows: workflows.split(/[\s,]+/).filter(Boolean),
      expires_in: LIVES[life]?.[1] ?? null,
    };
    read(api.POST("/api/v1/keys", { body: body as never })).then(
      (key) => setMade(key.key),
      (problem: Error) => {
        setError(problem);
        setBusy(false);
      },
    );
  };
  const close = (): void => {
    onClose();
    void client.invalidateQueries({ queryKey: ["keys"] });
  };
  if (made) {
    return (
      <Dialog
        title="New key"
        lead="Copy it now. It is not shown again."
        onClose={close}
        foot={
          <Button kind="primary" onClick={close}>
            Done
          </Button>
        }
      >
        <div className="row code">
          <code style={{ flex: 1, overflowWrap: "anywhere" }}>{made}</code>
          <CopyButton text={made} label="Copy the key" />
        </div>
      </Dialog>
    );
  }
  // A key whose answer is awaited exists already, and only the answer has its secret.
  const leave = (): void => {
    if (!busy) onClose();
  };
  return (
    <Dialog
      title="Create a key"
      onClose={leave}
      onSubmit={create}
      foot={
        <>
          <Button disabled={busy} onClick={leave}>
            Close
          </Button>
          <Button type="submit" kind="primary" disabled={busy || name.trim() === ""}>
            Create
          </Button>
        </>
      }
    >
      <Field label="Name" required hint="Where it is used, such as: nightly imports">
        {(ids) => <Input {...ids} value={name} onChange={(event) => setName(event.target.value)} />}
      </Field>
      <Field label="Role" hint={ROLES.find(([each]) => each === role)?.[1]}>
        {(ids) => (
          <Select {...ids} value={role} onChange={(event) => setRole(event.target.value)}>
            {ROLES.map(([each]) => (
              <option key={each}>{each}</option>
            ))}
          </Select>
        )}
      </Field>
      <Field label="Workflows" hint="Ids separated by spaces; * matches any text. Empty: all workflows.">
        {(ids) => <Input {...ids} value={workflows} onChange={(event) => setWorkflows(event.target.value)} />}
      </Field>
      <Field label="Expires">
        {(ids) => (
          <Select {...ids} value={String(life)} onChange={(event) => setLife(Number(event.target.value))}>
            {LIVES.map(([text], index) => (
              <option key={text} value={String(index)}>
                {text}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {first && role !== "admin" && (
        <Notice state="waiting">
          The first key turns authentication on. Without an admin key, no further keys can be created here.
        </Notice>
      )}
      <Rejected error={error} />
    </Dialog>
  );
}
