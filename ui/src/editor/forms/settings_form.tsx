/** Settings that every node has: name, note, credential, timeout, join, error policy, retry, queue. */
import { useQuery } from "@tanstack/react-query";
import { useState, type JSX } from "react";
import { api, read, type Schemas } from "../../api/client";
import { Field, Input, Select, Switch } from "../../parts/controls";
import { isNumeric, isObject, typedNumber, type Json } from "../../text/json";
import type { ViewNode } from "../document/document";
import DEFAULTS from "./retry.json";
import { setting, type Change } from "./setting";

export function SettingsForm({
  node,
  type,
  change,
}: {
  node: ViewNode;
  type: Schemas["NodeTypeView"] | undefined;
  change: Change;
}): JSX.Element {
  const credentials = useQuery({
    queryKey: ["credentials-of-editor"],
    queryFn: () => read(api.GET("/api/v1/credentials")),
    retry: false,
  });
  const { raw } = node;
  const set = (path: string[], value: Json | undefined): void => {
    const action = setting(raw, ["nodes", node.index, ...path], value);
    if (action) change(action, `change ${path.join(".")} of ${node.id}`, `${node.id}/${path.join("/")}`);
  };
  const retry = isObject(raw.retry) ? raw.retry : {};
  const policy = isObject(raw.error) ? raw.error.type : raw.error;
  const credential = isObject(raw.credentials) ? (raw.credentials.name ?? raw.credentials.id) : raw.credentials;
  const fitting = (
    (credentials.data as { credentials?: Schemas["CredentialView"][] } | undefined)?.credentials ?? []
  ).filter((each) => !type || type.credential_types.length === 0 || type.credential_types.includes(each.type));
  const number = (
    label: string,
    path: string[],
    value: Json | undefined,
    hint: string,
    { step = "any", shown }: { step?: number | "any"; shown?: number } = {},
  ): JSX.Element => (
    <Field label={label} hint={hint}>
      {(ids) => (
        <Input
          {...ids}
          type="number"
          min={0}
          step={step}
          placeholder={shown === undefined ? undefined : String(shown)}
          value={isNumeric(value) ? String(value) : ""}
          onChange={(event) => set(path, typedNumber(event.target.value) ?? undefined)}
        />
      )}
    </Field>
  );
  const line = (label: string, name: string, hint: string): JSX.Element => (
    <Field label={label} hint={hint}>
      {(ids) => (
        <Input
          {...ids}
          value={typeof raw[name] === "string" ? raw[name] : ""}
          onChange={(event) => set([name], event.target.value || undefined)}
        />
      )}
    </Field>
  );
  return (
    <>
      {line("Name", "name", "What people see instead of the id.")}
      {line("Note", "notes", "A note for people; it makes no new version.")}
      {(type?.credential_types.length ?? 0) > 0 && (
        <Field label="Credential" hint={`Of type ${type?.credential_types.join(", ")}`}>
          {(ids) => (
            <Select
              {...ids}
              value={typeof credential === "string" ? credential : ""}
              onChange={(event) => set(["credentials"], event.target.value || undefined)}
            >
              <option value="">none</option>
              {typeof credential === "string" && !fitting.some((each) => each.name === credential) && (
                <option value={credential}>{credential}</option>
              )}
              {fitting.map((each) => (
                <option key={each.id} value={each.name}>
                  {each.name} ({each.type})
                </option>
              ))}
            </Select>
          )}
        </Field>
      )}
      {number("Timeout", ["timeout"], raw.timeout, "Seconds that one attempt may take.")}
      <Field label="Join" hint="With several edges into the node: wait for all of them, or for the first.">
        {(ids) => (
          <Select
            {...ids}
            value={typeof raw.join === "string" ? raw.join : ""}
            onChange={(event) => set(["join"], event.target.value || undefined)}
          >
            <option value="">default</option>
            <option value="all">all</option>
            <option value="any">any</option>
          </Select>
        )}
      </Field>
      <Field label="On error" hint="After the last attempt failed.">
        {(ids) => (
          <Select
            {...ids}
            value={typeof policy === "string" ? policy : ""}
            onChange={(event) =>
              set(
                ["error"],
                event.target.value === ""
                  ? undefined
                  : isObject(raw.error)
                    ? { ...raw.error, type: event.target.value }
                    : event.target.value,
              )
            }
          >
            <option value="">default: halt the execution</option>
            <option value="halt">halt the execution</option>
            <option value="ignore">ignore the error</option>
            <option value="branch">follow the error edge</option>
          </Select>
        )}
      </Field>
      <fieldset className="edit-record">
        <legend>Retry</legend>
        {number("Attempts", ["retry", "max_attempts"], retry.max_attempts, "In all; 1 means no retry.", {
          step: 1,
          shown: DEFAULTS.max_attempts,
        })}
        {number("First delay", ["retry", "initial_delay"], retry.initial_delay, "Seconds before the second attempt.", {
          shown: DEFAULTS.initial_delay,
        })}
        {number("Factor", ["retry", "backoff"], retry.backoff, "By which the delay grows.", {
          shown: DEFAULTS.backoff,
        })}
        {number("Longest delay", ["retry", "max_delay"], retry.max_delay, "Seconds.", { shown: DEFAULTS.max_delay })}
        <div className="row">
          <Switch
            checked={(retry.jitter ?? DEFAULTS.jitter) === true}
            onChange={(next) => set(["retry", "jitter"], next === DEFAULTS.jitter ? undefined : next)}
            label="Jitter"
          />
          <span className="field-label" aria-hidden="true">
            Jitter
          </span>
          <span className="field-hint">Shortens each delay by a random part of up to one half.</span>
        </div>
        <Codes
          codes={Array.isArray(retry.on) ? retry.on.map(String) : []}
          onChange={(codes) => set(["retry", "on"], codes.length > 0 ? codes : undefined)}
        />
      </fieldset>
      {line("Queue", "queue", "The queue of the workers that run this node.")}
      <div className="row">
        <Switch
          checked={raw.at_most_once === true}
          onChange={(next) => set(["at_most_once"], next || undefined)}
          label="At most once"
        />
        <span className="field-label" aria-hidden="true">
          At most once
        </span>
        <span className="field-hint">Fail instead of running again when the outcome of a run is unknown.</span>
      </div>
    </>
  );
}

const codesIn = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

/** The error codes to retry. What is typed stays as it is while it denotes the codes of the document. */
function Codes({ codes, onChange }: { codes: readonly string[]; onChange: (codes: string[]) => void }): JSX.Element {
  const [typed, setTyped] = useState("");
  const joined = codes.join(", ");
  return (
    <Field label="Error codes" hint="Separated by commas. Default: every transient one.">
      {(ids) => (
        <Input
          {...ids}
          placeholder="every transient one"
          value={codesIn(typed).join(", ") === joined ? typed : joined}
          onChange={(event) => {
            setTyped(event.target.value);
            onChange(codesIn(event.target.value));
          }}
        />
      )}
    </Field>
  );
}
