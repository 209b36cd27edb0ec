/** Credentials: values go in and never come out. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { FileKey2, Plus, Trash2 } from "lucide-react";
import { useState, type JSX } from "react";
import { api, read, type Schemas } from "../api/client";
import { useRight } from "../api/rights";
import { Ago, Blank, Button, Failure, Field, IconButton, Input, Notice, Select, Skeleton, Switch } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { say } from "../parts/toasts";
import { Head } from "./shell";

type Credential = Schemas["CredentialView"];

/** The fields of the common types; any other type takes names and values. */
const FIELDS: Record<string, string[]> = {
  bearer: ["token"],
  basic: ["username", "password"],
  header: ["name", "value"],
  api_key: ["name", "value"],
  smtp: ["host", "port", "username", "password"],
};

export function CredentialsScreen(): JSX.Element {
  const right = useRight("admin");
  const credentials = useQuery({ queryKey: ["credentials"], queryFn: async () => (await read(api.GET("/api/v1/credentials"))).credentials });
  const [editing, setEditing] = useState<Credential | "new" | null>(null);
  const [removing, setRemoving] = useState<Credential | null>(null);
  const client = useQueryClient();
  return (
    <div className="screen">
      <Head
        title="Credentials"
        lead="Secrets that nodes use. They are encrypted, and their values are never shown."
        actions={
          <Button kind="primary" icon={Plus} disabled={!right.allowed} title={right.reason} onClick={() => setEditing("new")}>
            Add a credential
          </Button>
        }
      />
      <div className="card table-scroll" role="group" aria-label="Table of credentials" tabIndex={0}>
        {credentials.isError ? (
          <Failure error={credentials.error} retry={() => void credentials.refetch()} />
        ) : credentials.isPending ? (
          <Skeleton rows={4} height={24} />
        ) : credentials.data.length === 0 ? (
          <Blank icon={FileKey2} title="No credentials">
            Add one, and name it in the <code>credentials</code> of a node.
          </Blank>
        ) : (
          <table className="table">
            <thead>
              <tr>
                <th>Name</th>
                <th>Type</th>
                <th>Fields</th>
                <th>Hosts</th>
                <th>Changed</th>
                <th>
                  <span className="sr">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {credentials.data.map((each) => (
                <tr key={each.id}>
                  <td>
                    <b>{each.name}</b>
                  </td>
                  <td>{each.type}</td>
                  <td>{each.fields.map((field) => `${field}: •••`).join(", ")}</td>
                  <td>
                    {each.hosts.join(", ") || <span className="dim">–</span>} {each.insecure && <span className="tag">also without TLS</span>}
                  </td>
                  <td>
                    <Ago at={each.changed_at} />
                  </td>
                  <td>
                    <span className="row" style={{ justifyContent: "flex-end" }}>
                      <Button size="small" disabled={!right.allowed} title={right.reason} onClick={() => setEditing(each)}>
                        Change
                      </Button>
                      <IconButton size="small" icon={Trash2} label={`Delete ${each.name}`} disabled={!right.allowed} onClick={() => setRemoving(each)} />
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
      {editing && <CredentialDialog credential={editing === "new" ? null : editing} onClose={() => setEditing(null)} />}
      {removing && (
        <Dialog
          title={`Delete ${removing.name}?`}
          lead="Nodes that use it will fail."
          onClose={() => setRemoving(null)}
          foot={
            <>
              <Button onClick={() => setRemoving(null)}>Close</Button>
              <Button
                kind="danger"
                onClick={() => {
                  read(api.DELETE("/api/v1/credentials/{credential}", { params: { path: { credential: removing.name } } })).then(
                    () => (say("success", `Deleted ${removing.name}.`), void client.invalidateQueries({ queryKey: ["credentials"] })),
                    (error: Error) => say("failed", error.message),
                  );
                  setRemoving(null);
                }}
              >
                Delete
              </Button>
            </>
          }
        />
      )}
    </div>
  );
}

function CredentialDialog({ credential, onClose }: { credential: Credential | null; onClose: () => void }): JSX.Element {
  const client = useQueryClient();
  const [name, setName] = useState(credential?.name ?? "");
  const [type, setType] = useState(credential?.type ?? "bearer");
  const [values, setValues] = useState<Record<string, string>>({});
  const [hosts, setHosts] = useState(credential?.hosts.join(", ") ?? "");
  const [insecure, setInsecure] = useState(credential?.insecure ?? false);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const fields = credential ? credential.fields : (FIELDS[type] ?? ["value"]);
  const save = (): void => {
    setBusy(true);
    const list = hosts.split(/[\s,]+/).filter(Boolean);
    const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
    const typed = Object.fromEntries(Object.entries(given).map(([field, value]) => [field, field === "port" ? Number(value) : value]));
    const call = credential
      ? read(api.PATCH("/api/v1/credentials/{credential}", { params: { path: { credential: credential.name } }, body: { values: typed, hosts: list, insecure } as never }))
      : read(api.POST("/api/v1/credentials", { body: { name, type, values: typed, hosts: list, insecure, grants: [] } as never }));
    call.then(
      () => {
        say("success", credential ? `Changed ${name}; nodes use the new values from their next call.` : `Stored ${name}.`);
        void client.invalidateQueries({ queryKey: ["credentials"] });
        onClose();
      },
      (problem: Error) => {
        setError(problem.message);
        setBusy(false);
      },
    );
  };
  return (
    <Dialog
      title={credential ? `Change ${credential.name}` : "Add a credential"}
      lead={credential ? "Empty fields keep their stored values." : undefined}
      onClose={onClose}
      onSubmit={save}
      foot={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button type="submit" kind="primary" disabled={busy || name === ""}>
            Store
          </Button>
        </>
      }
    >
      {!credential && (
        <>
          <Field label="Name" required hint="Nodes refer to it by this name.">
            {(ids) => <Input {...ids} value={name} onChange={(event) => setName(event.target.value)} />}
          </Field>
          <Field label="Type">
            {(ids) => (
              <Select {...ids} value={type} onChange={(event) => setType(event.target.value)}>
                {Object.keys(FIELDS).map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </Select>
            )}
          </Field>
        </>
      )}
      {fields.map((field) => (
        <Field key={field} label={field}>
          {(ids) => (
            <Input
              {...ids}
              type={/password|token|value|secret|key/.test(field) ? "password" : "text"}
              autoComplete="new-password"
              placeholder={credential ? "unchanged" : ""}
              value={values[field] ?? ""}
              onChange={(event) => setValues({ ...values, [field]: event.target.value })}
            />
          )}
        </Field>
      ))}
      {type !== "smtp" && (
        <Field label="Hosts" hint="Hosts that may receive it, such as api.shop.example or *.shop.example.">
          {(ids) => <Input {...ids} value={hosts} onChange={(event) => setHosts(event.target.value)} />}
        </Field>
      )}
      <div className="row">
        <Switch checked={insecure} onChange={setInsecure} label="Also without TLS" />
        <span aria-hidden="true">Also send it without TLS</span>
      </div>
      {error && <Notice state="failed">{error}</Notice>}
    </Dialog>
  );
}
