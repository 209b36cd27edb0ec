/** Reading JSON Schemas: what widget a schema takes, a value to begin with, and the checks that need no server. */
import { compare, isNumeric, isObject, isWhole, type Numeric } from "../text/json";

export type Schema = {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  oneOf?: Schema[];
  anyOf?: Schema[];
  default?: unknown;
  examples?: unknown[];
  minimum?: Numeric;
  maximum?: Numeric;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  pattern?: string;
  format?: string;
  additionalProperties?: unknown;
};

export type Widget = "text" | "number" | "switch" | "choice" | "list" | "object" | "variants" | "json";

export function typeOf(schema: Schema): string | undefined {
  const types = Array.isArray(schema.type) ? schema.type.filter((each) => each !== "null") : [schema.type];
  return types.length === 1 ? types[0] : undefined;
}

export function widgetOf(schema: Schema): Widget {
  if (
    schema.enum &&
    schema.enum.length > 0 &&
    schema.enum.every((each) => typeof each !== "object" || each === null || isNumeric(each))
  )
    return "choice";
  if ((schema.oneOf ?? schema.anyOf)?.length) return "variants";
  switch (typeOf(schema)) {
    case "string":
      return "text";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "switch";
    case "array":
      return schema.items ? "list" : "json";
    case "object":
      return schema.properties && Object.keys(schema.properties).length > 0 ? "object" : "json";
    default:
      return "json";
  }
}

/** The value that a form begins with: defaults and examples, then the plainest value of the type. A choice, also one
 * between yes and no, is left to the person: without a default nothing is chosen. */
export function initial(schema: Schema): unknown {
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  if (schema.examples && schema.examples.length > 0) return schema.examples[0];
  switch (widgetOf(schema)) {
    case "choice":
      return schema.enum?.length === 1 ? schema.enum[0] : undefined;
    case "switch":
    case "number":
      return undefined;
    case "variants":
      return initial((schema.oneOf ?? schema.anyOf)?.[0] ?? {});
    case "text":
      return "";
    case "list":
      return [];
    case "object": {
      const value: Record<string, unknown> = {};
      for (const name of schema.required ?? []) {
        const property = schema.properties?.[name];
        if (property) value[name] = initial(property);
      }
      // A switch always shows an answer, so that the one it shows is the one that is sent.
      for (const [name, property] of Object.entries(schema.properties ?? {})) {
        if (property.default !== undefined && widgetOf(property) === "switch") value[name] = property.default;
      }
      return value;
    }
    default:
      return typeOf(schema) === "array" ? [] : typeOf(schema) === "object" || typeOf(schema) === undefined ? {} : null;
  }
}

/** An input that satisfies the schema as far as types tell, to run an example with one click. */
export function exampleInput(schema: unknown): unknown {
  return sample((schema ?? {}) as Schema);
}

function sample(schema: Schema): unknown {
  if (schema.default !== undefined) return schema.default;
  if (schema.examples && schema.examples.length > 0) return schema.examples[0];
  const widget = widgetOf(schema);
  if (widget === "number") return schema.minimum !== undefined && compare(schema.minimum, 1) > 0 ? schema.minimum : 1;
  if (widget === "choice") return schema.enum?.[0];
  if (widget === "switch") return false;
  if (widget === "text") return "example".padEnd(schema.minLength ?? 0, "x");
  if (widget === "list")
    return Array.from({ length: Math.max(schema.minItems ?? 1, 1) }, () => sample(schema.items ?? {}));
  if (widget === "object") {
    const value: Record<string, unknown> = {};
    for (const name of schema.required ?? []) value[name] = sample(schema.properties?.[name] ?? {});
    return value;
  }
  return initial(schema);
}

export type Problems = Record<string, string>;

/** Problems by path. The server checks the whole schema again; these are shown while typing. */
export function check(schema: Schema, value: unknown, path = "", required = true, found: Problems = {}): Problems {
  if (value === undefined || (value === "" && required && schema.minLength !== 0 && typeOf(schema) === "string")) {
    if (required) found[path] = "is required";
    return found;
  }
  const kind = typeOf(schema);
  if (kind === "integer" || kind === "number") {
    if (!isNumeric(value) || Number.isNaN(value)) found[path] = "must be a number";
    else if (kind === "integer" && !isWhole(value)) found[path] = "must be a whole number";
    else if (schema.minimum !== undefined && compare(value, schema.minimum) < 0)
      found[path] = `must be at least ${schema.minimum}`;
    else if (schema.maximum !== undefined && compare(value, schema.maximum) > 0)
      found[path] = `must be at most ${schema.maximum}`;
  } else if (kind === "string" && typeof value === "string") {
    if (schema.minLength !== undefined && value.length < schema.minLength)
      found[path] = `needs at least ${schema.minLength} characters`;
    else if (schema.maxLength !== undefined && value.length > schema.maxLength)
      found[path] = `has at most ${schema.maxLength} characters`;
  } else if (kind === "array" && Array.isArray(value)) {
    if (schema.minItems !== undefined && value.length < schema.minItems)
      found[path] = `needs at least ${schema.minItems} entries`;
    for (const [index, each] of value.entries()) check(schema.items ?? {}, each, `${path}/${index}`, true, found);
  } else if (kind === "object" && isObject(value)) {
    for (const [name, property] of Object.entries(schema.properties ?? {})) {
      check(property, value[name], `${path}/${name}`, schema.required?.includes(name) ?? false, found);
    }
  }
  return found;
}
