/** A form made from a JSON Schema. What it cannot draw becomes a JSON field. */
import { Check, Plus, Trash2, X } from "lucide-react";
import { useId, useState, type JSX } from "react";
import { Button, Field, IconButton, Input, Select, Switch } from "../parts/controls";
import { isNumeric, isObject, isSame, toJson, typedNumber } from "../text/json";
import { JsonField, parseJson } from "./json_field";
import { initial, typeOf, widgetOf, type Problems, type Schema } from "./schema";

type Props = {
  schema: Schema;
  value: unknown;
  onChange: (value: unknown) => void;
  path: string;
  name: string;
  required: boolean;
  problems: Problems;
};

function labelOf(schema: Schema, name: string): string {
  return schema.title ?? name;
}

function Text({ schema, value, onChange, path, name, required, problems }: Props): JSX.Element {
  const long = (schema.maxLength ?? 0) > 300 || schema.format === "textarea";
  const text = typeof value === "string" ? value : "";
  return (
    <Field label={labelOf(schema, name)} hint={schema.description} required={required} error={problems[path] ?? null}>
      {(ids) =>
        long ? (
          <textarea
            {...ids}
            className="textarea"
            rows={4}
            value={text}
            onChange={(event) => onChange(event.target.value)}
          />
        ) : (
          <Input
            {...ids}
            type={
              schema.format === "date"
                ? "date"
                : schema.format === "email"
                  ? "email"
                  : schema.format === "password"
                    ? "password"
                    : "text"
            }
            value={text}
            onChange={(event) => onChange(event.target.value === "" && !required ? undefined : event.target.value)}
          />
        )
      }
    </Field>
  );
}

function Numeric({ schema, value, onChange, path, name, required, problems }: Props): JSX.Element {
  const [text, setText] = useState(isNumeric(value) ? String(value) : "");
  return (
    <Field label={labelOf(schema, name)} hint={schema.description} required={required} error={problems[path] ?? null}>
      {(ids) => (
        <Input
          {...ids}
          inputMode={typeOf(schema) === "integer" ? "numeric" : "decimal"}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            onChange(event.target.value.trim() === "" ? undefined : (typedNumber(event.target.value) ?? NaN));
          }}
        />
      )}
    </Field>
  );
}

/** A question that has to be answered: two buttons, of which none is pressed before one is chosen. */
function YesOrNo({ schema, value, onChange, path, name, problems }: Props): JSX.Element {
  const id = useId();
  return (
    <div className="field">
      <span className="field-label" id={`${id}-label`}>
        {labelOf(schema, name)}
        <span className="dim">required</span>
      </span>
      <div
        className="answer"
        data-invalid={problems[path] ? true : undefined}
        role="group"
        aria-labelledby={`${id}-label`}
        aria-describedby={problems[path] ? `${id}-error` : undefined}
      >
        {[true, false].map((each) => (
          <button key={String(each)} type="button" aria-pressed={value === each} onClick={() => onChange(each)}>
            {each ? <Check size={15} aria-hidden="true" /> : <X size={15} aria-hidden="true" />}
            {each ? "Yes" : "No"}
          </button>
        ))}
      </div>
      {problems[path] ? (
        <span className="field-error" id={`${id}-error`} role="alert">
          {problems[path]}
        </span>
      ) : (
        schema.description && <span className="field-hint">{schema.description}</span>
      )}
    </div>
  );
}

function Toggle(props: Props): JSX.Element {
  const { schema, value, onChange, name, required } = props;
  if (required && schema.default === undefined) return <YesOrNo {...props} />;
  return (
    <div className="row">
      <Switch checked={value === true} onChange={onChange} label={labelOf(schema, name)} />
      <span className="field-label" aria-hidden="true">
        {labelOf(schema, name)}
      </span>
      {schema.description && <span className="field-hint">{schema.description}</span>}
    </div>
  );
}

function Choice({ schema, value, onChange, path, name, required, problems }: Props): JSX.Element {
  const options = schema.enum ?? [];
  const chosen = options.findIndex((each) => isSame(each, value));
  return (
    <Field label={labelOf(schema, name)} hint={schema.description} required={required} error={problems[path] ?? null}>
      {(ids) => (
        <Select {...ids} value={String(chosen)} onChange={(event) => onChange(options[Number(event.target.value)])}>
          {(!required || chosen < 0) && <option value="-1">{required ? "Choose…" : "–"}</option>}
          {options.map((each, index) => (
            <option key={index} value={String(index)}>
              {String(each)}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}

function List({ schema, value, onChange, path, name, problems }: Props): JSX.Element {
  const entries = Array.isArray(value) ? (value as unknown[]) : [];
  const items = schema.items ?? {};
  return (
    <fieldset className="form-group">
      <legend className="sr">{labelOf(schema, name)}</legend>
      <span className="field-label" aria-hidden="true">
        {labelOf(schema, name)}
        {schema.description && <span className="field-hint">{schema.description}</span>}
      </span>
      <div className="form-list">
        {entries.map((each, index) => (
          <div key={index} className="form-entry">
            <Part
              schema={items}
              value={each}
              onChange={(next) => onChange(entries.map((old, at) => (at === index ? next : old)))}
              path={`${path}/${index}`}
              name={`${labelOf(schema, name)} ${index + 1}`}
              required
              problems={problems}
            />
            <IconButton
              icon={Trash2}
              label={`Remove entry ${index + 1}`}
              onClick={() => onChange(entries.filter((_, at) => at !== index))}
            />
          </div>
        ))}
      </div>
      {problems[path] && <span className="field-error">{problems[path]}</span>}
      <div>
        <Button size="small" icon={Plus} onClick={() => onChange([...entries, initial(items)])}>
          Add an entry
        </Button>
      </div>
    </fieldset>
  );
}

function Properties({ schema, value, onChange, path, problems }: Omit<Props, "name" | "required">): JSX.Element {
  const known = (isObject(value) ? value : {}) as Record<string, unknown>;
  const set = (name: string, next: unknown): void => {
    const { [name]: _, ...rest } = known;
    onChange(next === undefined ? rest : { ...known, [name]: next });
  };
  return (
    <>
      {Object.entries(schema.properties ?? {}).map(([name, property]) => (
        <Part
          key={name}
          schema={property}
          value={known[name]}
          onChange={(next) => set(name, next)}
          path={`${path}/${name}`}
          name={name}
          required={schema.required?.includes(name) ?? false}
          problems={problems}
        />
      ))}
    </>
  );
}

function Variants(props: Props): JSX.Element {
  const variants = props.schema.oneOf ?? props.schema.anyOf ?? [];
  const [chosen, setChosen] = useState(0);
  const variant = variants[chosen] ?? {};
  return (
    <div className="form-group">
      <span className="field-label">{labelOf(props.schema, props.name)}</span>
      <div
        className="segments"
        role="group"
        aria-label={labelOf(props.schema, props.name)}
        style={{ alignSelf: "start" }}
      >
        {variants.map((each, index) => (
          <button
            key={index}
            type="button"
            aria-pressed={index === chosen}
            onClick={() => {
              setChosen(index);
              props.onChange(initial(each));
            }}
          >
            {each.title ?? typeOf(each) ?? `Variant ${index + 1}`}
          </button>
        ))}
      </div>
      <Part {...props} key={chosen} schema={variant} />
    </div>
  );
}

function AnyJson({ schema, value, onChange, name }: Props): JSX.Element {
  const [text, setText] = useState(value === undefined ? "" : toJson(value, 2));
  return (
    <JsonField
      label={labelOf(schema, name)}
      hint={schema.description ?? "JSON"}
      rows={4}
      value={text === "" ? "null" : text}
      onChange={(next) => {
        setText(next);
        const parsed = parseJson(next);
        if (parsed.ok) onChange(parsed.value);
      }}
    />
  );
}

function Part(props: Props): JSX.Element {
  switch (widgetOf(props.schema)) {
    case "text":
      return <Text {...props} />;
    case "number":
      return <Numeric {...props} />;
    case "switch":
      return <Toggle {...props} />;
    case "choice":
      return <Choice {...props} />;
    case "list":
      return <List {...props} />;
    case "variants":
      return <Variants {...props} />;
    case "object":
      return (
        <fieldset className="form-group">
          <legend className="sr">{labelOf(props.schema, props.name)}</legend>
          <span className="field-label" aria-hidden="true">
            {labelOf(props.schema, props.name)}
          </span>
          <Properties {...props} />
        </fieldset>
      );
    default:
      return <AnyJson {...props} />;
  }
}

export function SchemaForm({
  schema,
  value,
  onChange,
  problems,
}: {
  schema: Schema;
  value: unknown;
  onChange: (value: unknown) => void;
  problems: Problems;
}): JSX.Element {
  if (widgetOf(schema) === "object") {
    return (
      <div className="form">
        <Properties schema={schema} value={value} onChange={onChange} path="" problems={problems} />
      </div>
    );
  }
  return (
    <div className="form">
      <Part schema={schema} value={value} onChange={onChange} path="" name="Input" required problems={problems} />
    </div>
  );
}
