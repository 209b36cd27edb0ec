/** Fields of parameters, made from the JSON Schemas of the catalogue. Each is a value or an expression. */
import { Braces, Plus, Trash2, Type } from "lucide-react";
import { useId, useState, type JSX } from "react";
import { JsonField, parseJson } from "../../forms/json_field";
import { Button, CodeSpans, Field, IconButton, Input, Select, Switch } from "../../parts/controls";
import { isNumeric, isObject, isSame as isSameScalar, toJson, typedNumber, type Json } from "../../text/json";
import { Expression, type Place } from "../expressions/expression";
import { CronInput } from "./cron";
import { controlOf, isDynamic, plainSchema, type Control as Kind, type Schema } from "./fields_schema";

export type Choices = { workflows: readonly string[]; edges: readonly string[]; timezone: string };

type Props = {
  name: string;
  label: string;
  schema: Schema;
  widget?: string | undefined;
  value: Json | undefined;
  required: boolean;
  place: Place;
  choices: Choices;
  problem?: string | undefined;
  onChange: (value: Json | undefined) => void;
};

const WHOLE = new Set(["expression"]);

export function ValueField(props: Props): JSX.Element {
  const { name, label, schema, widget, value, required, place, onChange } = props;
  const control = controlOf(schema, widget);
  const always = widget === "expression" || widget === "condition";
  const [asked, setAsked] = useState<boolean | null>(null);
  const id = useId();
  const dynamic = asked ?? (always ? typeof value === "string" || value === undefined : isDynamic(value));
  const composed = control === "records" || control === "map" || control === "list";
  const group = dynamic || composed ? { role: "group", "aria-label": label } : {};
  return (
    <div className="edit-field" {...group}>
      <div className="edit-field-head">
        {(dynamic || composed) && (
          <span className="field-label" id={id}>
            {label}
            {required && <span className="dim">required</span>}
          </span>
        )}
        <button
          type="button"
          className="edit-mode"
          aria-pressed={dynamic}
          aria-label={dynamic ? `Write ${label} as a value` : `Write ${label} as an expression`}
          title={dynamic ? "As a value" : "As an expression"}
          onClick={() => setAsked(!dynamic)}
        >
          {dynamic ? <Type size={13} aria-hidden="true" /> : <Braces size={13} aria-hidden="true" />}
        </button>
      </div>
      {dynamic ? (
        <Expression
          label={label}
          value={typeof value === "string" ? value : value === undefined ? "" : toJson(value)}
          whole={WHOLE.has(name)}
          place={place}
          onChange={(text) => onChange(text === "" && !required ? undefined : text)}
        />
      ) : (
        <Control {...props} control={control} />
      )}
      {(dynamic || composed) && schema.description && (
        <span className="field-hint">
          <CodeSpans text={schema.description} />
        </span>
      )}
      {props.problem && (
        <span className="field-error" role="alert">
          {props.problem}
        </span>
      )}
    </div>
  );
}

function Control({ control, ...props }: Props & { control: Kind }): JSX.Element {
  const { label, schema, value, required, onChange, choices } = props;
  const plain = plainSchema(schema);
  const text = typeof value === "string" ? value : value === undefined || value === null ? "" : toJson(value);
  const shown =
    schema.default === undefined || schema.default === null
      ? ""
      : String(typeof schema.default === "object" && !isNumeric(schema.default) ? "" : schema.default);
  const setText = (next: string): void => onChange(next === "" && !required ? undefined : next);
  switch (control) {
    case "cron":
      return (
        <Field label={label} hint={schema.description} required={required}>
          {(ids) => <CronInput ids={ids} value={text} timezone={choices.timezone} onChange={setText} />}
        </Field>
      );
    case "text":
      return (
        <Field label={label} hint={schema.description} required={required}>
          {(ids) => (
            <Input {...ids} value={text} placeholder={shown} onChange={(event) => setText(event.target.value)} />
          )}
        </Field>
      );
    case "long":
      return (
        <Field label={label} hint={schema.description} required={required}>
          {(ids) => (
            <textarea
              {...ids}
              className="textarea"
              rows={3}
              value={text}
              placeholder={shown}
              onChange={(event) => setText(event.target.value)}
            />
          )}
        </Field>
      );
    case "number":
      return (
        <Field label={label} hint={schema.description} required={required}>
          {(ids) => (
            <Input
              {...ids}
              type="number"
              step={plain.type === "integer" ? 1 : "any"}
              min={plain.minimum?.toString()}
              max={plain.maximum?.toString()}
              value={isNumeric(value) ? String(value) : ""}
              placeholder={shown}
              onChange={(event) => onChange(typedNumber(event.target.value) ?? undefined)}
            />
          )}
        </Field>
      );
    case "switch":
      return (
        <div className="row">
          <Switch
            checked={(value ?? schema.default) === true}
            onChange={(next) => onChange(next === schema.default ? undefined : next)}
            label={label}
          />
          <span className="field-label" aria-hidden="true">
            {label}
          </span>
          {schema.description && (
            <span className="field-hint">
              <CodeSpans text={schema.description} />
            </span>
          )}
        </div>
      );
    case "choice":
      return (
        <Picker {...props} options={(plain.enum ?? []).filter((each) => each !== null).map(String)} raw={plain.enum} />
      );
    case "workflow":
      return <Picker {...props} options={choices.workflows} />;
    case "edge":
      return <Picker {...props} options={choices.edges} />;
    case "timezone":
      return (
        <Field label={label} hint={schema.description}>
          {(ids) => (
            <>
              <Input
                {...ids}
                list={`${ids.id}-zones`}
                value={text}
                placeholder={shown}
                onChange={(event) => setText(event.target.value)}
              />
              <datalist id={`${ids.id}-zones`}>
                {Intl.supportedValuesOf("timeZone").map((each) => (
                  <option key={each} value={each} />
                ))}
              </datalist>
            </>
          )}
        </Field>
      );
    case "map":
      return <MapField {...props} />;
    case "records":
      return <Records {...props} />;
    case "list":
      return <Texts {...props} />;
    default:
      return <AnyField {...props} />;
  }
}

function Picker({
  label,
  schema,
  value,
  required,
  onChange,
  options,
  raw,
}: Props & { options: readonly string[]; raw?: Json[] | undefined }): JSX.Element {
  const text = value === undefined || value === null ? "" : String(value);
  const unknown = text !== "" && !options.includes(text);
  return (
    <Field label={label} hint={schema.description} required={required}>
      {(ids) => (
        <Select
          {...ids}
          value={text}
          onChange={(event) =>
            onChange(
              event.target.value === ""
                ? undefined
                : (raw?.find((each) => String(each) === event.target.value) ?? event.target.value),
            )
          }
        >
          {(!required || text === "") && (
            <option value="">
              {schema.default === undefined || schema.default === null ? "–" : `default: ${String(schema.default)}`}
            </option>
          )}
          {unknown && <option value={text}>{text}</option>}
          {options.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}

function jsonText(value: Json | undefined): string {
  return value === undefined ? "" : toJson(value, 2);
}

/** The text of a field, and what sets the text and the value that it denotes. A change of the value from elsewhere, such as
 * undo, replaces the text. */
function useTextOf(
  value: Json | undefined,
  write: (value: Json | undefined) => string,
): [string, (text: string, value: Json | undefined) => void, (text: string) => void] {
  const [text, setText] = useState(write(value));
  const [last, setLast] = useState(value);
  if (value !== last && toJson(value ?? null) !== toJson(last ?? null)) {
    setLast(value);
    setText(write(value));
  }
  const setBoth = (next: string, meant: Json | undefined): void => {
    setText(next);
    setLast(meant);
  };
  return [text, setBoth, setText];
}

/** The value that a text denotes: JSON, else the text itself unless it is the beginning of JSON. */
function typedValue(text: string): { ok: boolean; value: Json } {
  const parsed = parseJson(text);
  if (parsed.ok) return { ok: true, value: parsed.value as Json };
  return /^[\s]*[[{"]/.test(text) ? { ok: false, value: null } : { ok: true, value: text };
}

/** A text stands as it is if it denotes itself, else as JSON. */
function plainText(value: Json | undefined): string {
  if (typeof value !== "string" || value === "") return jsonText(value);
  const denoted = typedValue(value);
  return denoted.ok && isSameScalar(denoted.value, value) ? value : jsonText(value);
}

function AnyField({ label, schema, value, onChange }: Props): JSX.Element {
  const [text, setBoth, setText] = useTextOf(value, plainText);
  const current = text === "" ? { ok: true, value: null } : typedValue(text);
  return (
    <Field
      label={label}
      hint={schema.description ?? "Text, or a JSON value."}
      error={current.ok ? null : "This is not complete JSON yet."}
    >
      {(ids) => (
        <textarea
          {...ids}
          className="textarea"
          rows={Math.min(8, Math.max(2, text.split("\n").length))}
          spellCheck={false}
          value={text}
          onChange={(event) => {
            const typed = event.target.value;
            const next = typed === "" ? { ok: true, value: undefined } : typedValue(typed);
            if (!next.ok) return setText(typed);
            setBoth(typed, next.value);
            onChange(next.value);
          }}
        />
      )}
    </Field>
  );
}

function isSame(entries: readonly [string, Json][], value: { [key: string]: Json }): boolean {
  return (
    entries.length === Object.keys(value).length &&
    entries.every(([name, each]) => name in value && toJson(each) === toJson(value[name] as Json))
  );
}

function MapField({ label, value, place, choices, onChange }: Props): JSX.Element {
  const stored = isObject(value) ? value : {};
  const [open, setOpen] = useState<{ of: Json | undefined; entries: [string, Json][] } | null>(null);
  // The entries keep their order while names are typed. Two of the same name are not written, as one would lose its value.
  const entries = open && (open.of === value || isSame(open.entries, stored)) ? open.entries : Object.entries(stored);
  const twice = entries.find(([name], at) => entries.findIndex(([other]) => other === name) !== at)?.[0];
  const change = (next: [string, Json][]): void => {
    const isWhole = new Set(next.map(([name]) => name)).size === next.length;
    setOpen({ of: isWhole ? null : value, entries: next });
    if (isWhole) onChange(next.length === 0 ? undefined : Object.fromEntries(next));
  };
  return (
    <div className="form-list">
      {entries.map(([key, each], index) => (
        <div key={index} className="edit-pair">
          <Input
            aria-label={`Name ${index + 1} of ${label}`}
            value={key}
            onChange={(event) => change(entries.map((old, at) => (at === index ? [event.target.value, old[1]] : old)))}
          />
          <ValueField
            name={key}
            label={key || "value"}
            schema={{ type: "string" }}
            value={each}
            required
            place={place}
            choices={choices}
            onChange={(next) => change(entries.map((old, at) => (at === index ? [old[0], next ?? ""] : old)))}
          />
          <IconButton
            size="small"
            icon={Trash2}
            label={`Remove ${key || "the entry"}`}
            onClick={() => change(entries.filter((_, at) => at !== index))}
          />
        </div>
      ))}
      {twice !== undefined && (
        <span className="field-error" role="alert">
          {`Two entries are named ${twice || "with an empty text"}; give one of them another name.`}
        </span>
      )}
      <div>
        <Button
          size="small"
          icon={Plus}
          onClick={() => {
            let name = "name";
            for (let count = 2; entries.some(([key]) => key === name); count++) name = `name${count}`;
            change([...entries, [name, ""]]);
          }}
        >
          Add to {label}
        </Button>
      </div>
    </div>
  );
}

function Texts({ label, value, onChange }: Props): JSX.Element {
  const entries = Array.isArray(value) ? value : [];
  const change = (next: Json[]): void => onChange(next.length === 0 ? undefined : next);
  return (
    <div className="form-list">
      {entries.map((each, index) => (
        <div key={index} className="edit-pair">
          <Input
            aria-label={`${label} ${index + 1}`}
            value={typeof each === "string" ? each : toJson(each)}
            onChange={(event) => change(entries.map((old, at) => (at === index ? event.target.value : old)))}
          />
          <IconButton
            size="small"
            icon={Trash2}
            label={`Remove entry ${index + 1}`}
            onClick={() => change(entries.filter((_, at) => at !== index))}
          />
        </div>
      ))}
      <div>
        <Button size="small" icon={Plus} onClick={() => change([...entries, ""])}>
          Add to {label}
        </Button>
      </div>
    </div>
  );
}

function Records({ label, schema, value, required, place, choices, onChange }: Props): JSX.Element {
  const entries = Array.isArray(value) ? value : [];
  const item = plainSchema(schema).items ?? {};
  const change = (next: Json[]): void => onChange(next.length === 0 && !required ? undefined : next);
  const blank = (): Json =>
    Object.fromEntries(
      (item.required ?? Object.keys(item.properties ?? {}).slice(0, 2)).map((name) => [
        name,
        item.properties?.[name]?.enum?.[0] ?? "",
      ]),
    );
  return (
    <div className="form-list">
      {entries.map((each, index) => (
        <fieldset key={index} className="edit-record">
          <legend>
            {label} {index + 1}
          </legend>
          {Object.entries(item.properties ?? {}).map(([name, field]) => (
            <ValueField
              key={name}
              name={name}
              label={name}
              schema={field}
              value={isObject(each) ? each[name] : undefined}
              required={item.required?.includes(name) ?? false}
              place={place}
              choices={choices}
              onChange={(next) => {
                const { [name]: _, ...rest } = isObject(each) ? each : {};
                change(
                  entries.map((old, at) =>
                    at === index
                      ? next === undefined
                        ? rest
                        : isObject(each) && name in each
                          ? { ...each, [name]: next }
                          : { ...rest, [name]: next }
                      : old,
                  ),
                );
              }}
            />
          ))}
          <IconButton
            size="small"
            icon={Trash2}
            label={`Remove ${label} ${index + 1}`}
            onClick={() => change(entries.filter((_, at) => at !== index))}
          />
        </fieldset>
      ))}
      <div>
        <Button size="small" icon={Plus} onClick={() => change([...entries, blank()])}>
          Add to {label}
        </Button>
      </div>
    </div>
  );
}

/** A JSON field for values that belong to the document itself, such as its input schema. */
export function DocumentJson({
  label,
  hint,
  value,
  onChange,
}: {
  label: string;
  hint: string;
  value: Json | undefined;
  onChange: (value: Json | undefined) => void;
}): JSX.Element {
  const [text, setBoth, setText] = useTextOf(value, jsonText);
  return (
    <JsonField
      label={label}
      hint={hint}
      rows={6}
      value={text === "" ? "{}" : text}
      onChange={(next) => {
        const parsed = parseJson(next);
        if (!parsed.ok) return setText(next);
        const meant =
          isObject(parsed.value as Json) && Object.keys(parsed.value as object).length === 0
            ? undefined
            : (parsed.value as Json);
        setBoth(next, meant);
        onChange(meant);
      }}
    />
  );
}
