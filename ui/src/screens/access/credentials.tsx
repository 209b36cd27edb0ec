/** Credentials: values go in and never come out. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { FileKey2, Plus, Trash2 } from "lucide-react";
import { useState, type JSX } from "react";
import { Link } from "wouter";
import { api, read, type Schemas } from "../../api/client";
import { useRight } from "../../api/rights";
import { Ago, Blank, Button, Field, IconButton, Input, Rejected, Select, Switch } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { Listed } from "../../parts/reading";
import { TableCard, type Column } from "../../parts/table";
import { say } from "../../parts/toasts";
import { fieldsOf, valuesOf, type CredentialField } from "./credential_fields";
import { Head } from "../shell/shell";

type Credential = Schemas["CredentialView"];

type CredentialType = Schemas["CredentialTypeView"];

function useTypes(): CredentialType[] {
  const found = useQuery({
    queryKey: ["credential-types"],
    queryFn: async () => (await read(api.GET("/api/v1/credential-types"))).credential_types,
    staleTime: Infinity,
  });
  return found.data ?? [];
}

export function CredentialsScreen(): JSX.Element {
  const right = useRight("admin");
  const credentials = useQuery({
    queryKey: ["credentials"],
    queryFn: async () => (await read(api.GET("/api/v1/credentials"))).credentials,
  });
  const [editing, setEditing] = useState<Credential | "new" | null>(null);
  const [removing, setRemoving] = useState<Credential | null>(null);
  const [granting, setGranting] = useState<Credential | null>(null);
  const [using, setUsing] = useState<Credential | null>(null);
  const client = useQueryClient();
  const columns: Column<Credential>[] = [
    { title: "Name", cell: (each) => <b>{each.name}</b> },
    { title: "Type", cell: (each) => each.type },
    { title: "Fields", cell: (each) => each.fields.map((field) => `${field}: •••`).join(", ") },
    {
      title: "Hosts",
      cell: (each) => (
        <>
          {each.hosts.join(", ") || <span className="dim">–</span>}{" "}
          {each.insecure && <span className="tag">also without TLS</span>}
        </>
      ),
    },
    { title: "Changed", cell: (each) => <Ago at={each.changed_at} /> },
    {
      title: "Actions",
      untitled: true,
      cell: (each) => (
        <span className="row" style={{ justifyContent: "flex-end" }}>
          <Button size="small" onClick={() => setUsing(each)}>
            Uses<span className="sr"> of {each.name}</span>
          </Button>
          <Button size="small" disabled={!right.allowed} title={right.reason} onClick={() => setGranting(each)}>
            Grants
          </Button>
          <Button size="small" disabled={!right.allowed} title={right.reason} onClick={() => setEditing(each)}>
            Change
          </Button>
          <IconButton
            size="small"
            icon={Trash2}
            label={`Delete ${each.name}`}
            disabled={!right.allowed}
            onClick={() => setRemoving(each)}
          />
        </span>
      ),
    },
  ];
  return (
    <div className="screen">
      <Head
        title="Credentials"
        lead="Secrets that nodes use. They are encrypted, and their values are never shown."
        actions={
          <Button
            kind="primary"
            icon={Plus}
            disabled={!right.allowed}
            title={right.reason}
            onClick={() => setEditing("new")}
          >
            Add a credential
          </Button>
        }
      />
      <TableCard
        label="Table of credentials"
        query={credentials}
        rows={credentials.data}
        skeleton={{ rows: 4, height: 24 }}
        blank={
          <Blank icon={FileKey2} title="No credentials">
            Add one, and name it in the <code>credentials</code> of a node.
          </Blank>
        }
        columns={columns}
        keyOf={(each) => each.id}
      />
      {editing && <CredentialDialog credential={editing === "new" ? null : editing} onClose={() => setEditing(null)} />}
      {using && <UsesDialog credential={using} onClose={() => setUsing(null)} />}
      {granting && <GrantsDialog credential={granting} onClose={() => setGranting(null)} />}
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
                  read(
                    api.DELETE("/api/v1/credentials/{credential}", { params: { path: { credential: removing.name } } }),
                  ).then(
                    () => {
                      say("success", `Deleted ${removing.name}.`);
                      void client.invalidateQueries({ queryKey: ["credentials"] });
                    },
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

function CredentialDialog({
  credential,
  onClose,
}: {
  credential: Credential | null;
  onClose: () => void;
}): JSX.Element {
  const client = useQueryClient();
  const types = useTypes();
  const [name, setName] = useState(credential?.name ?? "");
  const [type, setType] = useState(credential?.type ?? "bearer");
  const [values, setValues] = useState<Record<string, string>>({});
  const [own, setOwn] = useState<string[]>(credential?.type === "custom" ? credential.fields : []);
  const [hosts, setHosts] = useState(credential?.hosts.join(", ") ?? "");
  const [insecure, setInsecure] = useState(credential?.insecure ?? false);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const described = types.find((each) => each.type === type);
  const fields = described ? fieldsOf(described) : [];
  const missing = credential === null && fields.some((each) => each.required && !values[each.name]);
  const save = (): void => {
    setBusy(true);
    const list = hosts.split(/[\s,]+/).filter(Boolean);
    const typed = valuesOf(fields, values);
    const call = credential
      ? read(
          api.PATCH("/api/v1/credentials/{credential}", {
            params: { path: { credential: credential.name } },
            body: { values: typed, hosts: list, insecure } as never,
          }),
        )
      : read(
          api.POST("/api/v1/credentials", {
            body: { name, type, values: typed, hosts: list, insecure, grants: [] } as never,
          }),
        );
    call.then(
      () => {
        say(
          "success",
          credential ? `Changed ${name}; nodes use the new values from their next call.` : `Stored ${name}.`,
        );
        void client.invalidateQueries({ queryKey: ["credentials"] });
        onClose();
      },
      (problem: Error) => {
        setError(problem);
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
          <Button type="submit" kind="primary" disabled={busy || name === "" || missing}>
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
          <Field label="Type" hint={described?.summary}>
            {(ids) => (
              <Select
                {...ids}
                value={type}
                onChange={(event) => {
                  setType(event.target.value);
                  setValues({});
                }}
              >
                {types.map((each) => (
                  <option key={each.type}>{each.type}</option>
                ))}
              </Select>
            )}
          </Field>
        </>
      )}
      {fields.map((field) => (
        <CredentialInput
          key={field.name}
          field={field}
          stored={credential?.fields.includes(field.name) ?? false}
          value={values[field.name] ?? ""}
          onChange={(value) => setValues({ ...values, [field.name]: value })}
        />
      ))}
      {type === "custom" && (
        <>
          {own.map((field) => (
            <CredentialInput
              key={field}
              field={{ name: field, required: false, secret: true, number: false, choices: [], preset: "" }}
              stored={credential?.fields.includes(field) ?? false}
              value={values[field] ?? ""}
              onChange={(value) => setValues({ ...values, [field]: value })}
            />
          ))}
          <NewField known={own} onAdd={(field) => setOwn([...own, field])} />
        </>
      )}
      {type !== "smtp" && (
        <Field label="Hosts" hint="Hosts that may receive it, such as api.shop.example or *.shop.example.">
          {(ids) => <Input {...ids} value={hosts} onChange={(event) => setHosts(event.target.value)} />}
        </Field>
      )}
      <div className="row">
        <Switch checked={insecure} onChange={setInsecure} label="Also without TLS" />
        <span aria-hidden="true">Also send it without TLS</span>
      </div>
      <Rejected error={error} />
    </Dialog>
  );
}

function CredentialInput({
  field,
  stored,
  value,
  onChange,
}: {
  field: CredentialField;
  stored: boolean;
  value: string;
  onChange: (value: string) => void;
}): JSX.Element {
  return (
    <Field label={field.name} required={field.required}>
      {(ids) =>
        field.choices.length > 0 ? (
          <Select {...ids} value={value} onChange={(event) => onChange(event.target.value)}>
            <option value="">{stored ? "unchanged" : field.preset}</option>
            {field.choices
              .filter((each) => stored || each !== field.preset)
              .map((each) => (
                <option key={each}>{each}</option>
              ))}
          </Select>
        ) : (
          <Input
            {...ids}
            type={field.secret ? "password" : field.number ? "number" : "text"}
            autoComplete={field.secret ? "new-password" : "off"}
            placeholder={stored ? "unchanged" : field.preset}
            value={value}
            onChange={(event) => onChange(event.target.value)}
          />
        )
      }
    </Field>
  );
}

/** Another field of a custom credential. */
function NewField({ known, onAdd }: { known: readonly string[]; onAdd: (field: string) => void }): JSX.Element {
  const [name, setName] = useState("");
  const free = name !== "" && !known.includes(name);
  return (
    <div className="row">
      <Input
        aria-label="Name of a further field"
        placeholder="Name of a further field"
        value={name}
        onChange={(event) => setName(event.target.value)}
      />
      <Button
        disabled={!free}
        onClick={() => {
          onAdd(name);
          setName("");
        }}
      >
        Add
      </Button>
    </div>
  );
}

/** Where a credential is used: the nodes that refer to it, by workflow. */
function UsesDialog({ credential, onClose }: { credential: Credential; onClose: () => void }): JSX.Element {
  const uses = useQuery({
    queryKey: ["credential-uses", credential.name],
    queryFn: async () =>
      (
        await read(
          api.GET("/api/v1/credentials/{credential}/uses", { params: { path: { credential: credential.name } } }),
        )
      ).uses,
  });
  return (
    <Dialog
      title={`Where ${credential.name} is used`}
      lead="In the latest version of each workflow and in versions with an alias. References by an expression are not found."
      onClose={onClose}
      foot={<Button onClick={onClose}>Close</Button>}
    >
      <Listed
        query={uses}
        rows={uses.data}
        skeleton={{ rows: 2, height: 24 }}
        blank={<p className="dim">No workflow refers to it.</p>}
      >
        {(rows) => (
          <ul className="stack" style={{ gap: 4 }} aria-label="Workflows">
            {rows.map((each) => (
              <li key={`${each.workflow_id}/${each.version}`} className="row wrap">
                <Link href={`/workflows/${each.workflow_id}/versions/${each.version}`}>
                  {each.name || each.workflow_id} {each.version}
                </Link>
                {each.aliases.map((alias) => (
                  <span key={alias} className="tag">
                    {alias}
                  </span>
                ))}
                <code className="dim">{each.nodes.join(", ")}</code>
              </li>
            ))}
          </ul>
        )}
      </Listed>
    </Dialog>
  );
}

/** Who may use a credential: executions of these principals and workflows. */
function GrantsDialog({ credential, onClose }: { credential: Credential; onClose: () => void }): JSX.Element {
  const client = useQueryClient();
  const key = ["grants", credential.name];
  const params = { path: { credential: credential.name } };
  const grants = useQuery({
    queryKey: key,
    queryFn: async () => (await read(api.GET("/api/v1/credentials/{credential}/grants", { params }))).granted,
  });
  const [added, setAdded] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const change = (body: { grant: string[]; withdraw: string[] }): void => {
    setError(null);
    read(api.POST("/api/v1/credentials/{credential}/grants", { params, body: body as never })).then(
      () => {
        // Read again: of two changes, the answer to the first may come last.
        void client.invalidateQueries({ queryKey: key });
        setAdded("");
      },
      (problem: Error) => setError(problem),
    );
  };
  return (
    <Dialog
      title={`Who may use ${credential.name}`}
      lead="Changes apply to every use from now on, also by executions that are running."
      onClose={onClose}
      onSubmit={() => added && change({ grant: [added], withdraw: [] })}
      foot={<Button onClick={onClose}>Close</Button>}
    >
      <Listed
        query={grants}
        rows={grants.data}
        skeleton={{ rows: 2, height: 24 }}
        blank={<p className="dim">Nobody. Nodes that use it fail.</p>}
      >
        {(rows) => (
          <ul className="stack" style={{ gap: 4 }} aria-label="Granted to">
            {rows.map((each) => (
              <li key={each} className="row">
                <code style={{ flex: 1 }}>{each}</code>
                <Button size="small" onClick={() => change({ grant: [], withdraw: [each] })}>
                  Withdraw<span className="sr"> from {each}</span>
                </Button>
              </li>
            ))}
          </ul>
        )}
      </Listed>
      <Field
        label="Grant to"
        hint="everyone, queue, local, bootstrap, key:ID, trigger:ID or workflow:ID; * matches any text in an id."
      >
        {(ids) => (
          <span className="row">
            <Input {...ids} value={added} onChange={(event) => setAdded(event.target.value.trim())} />
            <Button type="submit" kind="primary" disabled={added === ""}>
              Grant
            </Button>
          </span>
        )}
      </Field>
      <Rejected error={error} />
    </Dialog>
  );
}
