/** A form made from a JSON Schema. What it cannot draw becomes a JSON field. */
import { Plus, Trash2 } from "lucide-react";
import { useState, type JSX } from "react";
import { Button, Field, IconButton, Input, Select, Switch } from "../parts/controls";
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
          <textarea {...ids} className="textarea" rows={4} value={text} onChange={(event) => onChange(event.target.value)} />
        ) : (
          <Input
            {...ids}
            type={schema.format === "date" ? "date" : schema.format === "email" ? "email" : schema.format === "password" ? "password" : "text"}
            value={text}
            onChange={(event) => onChange(event.target.value === "" && !required ? undefined : event.target.value)}
          />
        )
      }
    </Field>
  );
}

function Numeric({ schema, value, onChange, path, name, required, problems }: Props): JSX.Element {
  const [text, setText] = useState(typeof value === "number" ? String(value) : "");
  return (
    <Field label={labelOf(schema, name)} hint={schema.description} required={required} error={problems[path] ?? null}>
      {(ids) => (
        <Input
          {...ids}
          inputMode={typeOf(schema) === "integer" ? "numeric" : "decimal"}
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            onChange(event.target.value.trim() === "" ? undefined : Number(event.target.value));
          }}
        />
      )}
    </Field>
  );
}

function Toggle({ schema, value, onChange, name }: Props): JSX.Element {
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
  return (
    <Field label={labelOf(schema, name)} hint={schema.description} required={required} error={problems[path] ?? null}>
      {(ids) => (
        <Select {...ids} value={String(options.findIndex((each) => each === value))} onChange={(event) => onChange(options[Number(event.target.value)])}>
          {!required && <option value="-1">–</option>}
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
            <IconButton icon={Trash2} label={`Remove entry ${index + 1}`} onClick={() => onChange(entries.filter((_, at) => at !== index))} />
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
  const known = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
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
      <div className="segments" role="group" aria-label={labelOf(props.schema, props.name)} style={{ alignSelf: "start" }}>
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
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
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

export function SchemaForm({ schema, value, onChange, problems }: { schema: Schema; value: unknown; onChange: (value: unknown) => void; problems: Problems }): JSX.Element {
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
