/** Reading the JSON Schemas of parameters: which control a field takes. */
import type { Json, Numeric } from "../../text/json";

export type Schema = {
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: Json[];
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  default?: Json;
  minimum?: Numeric;
  maximum?: Numeric;
};

/** The schema without the alternative null; the first alternative if several remain. */
export function plainSchema(schema: Schema): Schema {
  if (!schema.anyOf)
    return Array.isArray(schema.type)
      ? { ...schema, type: schema.type.find((each) => each !== "null") ?? "string" }
      : schema;
  const kinds = schema.anyOf.filter((each) => each.type !== "null");
  const first = kinds.length === 1 ? kinds[0] : undefined;
  const { anyOf: _, ...rest } = schema;
  if (first) return { ...first, ...rest };
  return kinds.some((each) => each.type === "string") &&
    kinds.every((each) => each.type === "string" || each.type === "integer" || each.type === "number")
    ? { ...rest, type: "string" }
    : rest;
}

export type Control =
  | "text"
  | "long"
  | "number"
  | "switch"
  | "choice"
  | "map"
  | "records"
  | "list"
  | "json"
  | "workflow"
  | "edge"
  | "timezone"
  | "cron";

export function controlOf(schema: Schema, widget: string | undefined): Control {
  if (widget === "workflow" || widget === "edge" || widget === "timezone" || widget === "cron") return widget;
  if (widget === "text" || widget === "html") return "long";
  const plain = plainSchema(schema);
  if (plain.enum) return "choice";
  switch (plain.type) {
    case "string":
      return "text";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "switch";
    case "object":
      return plain.properties ? "json" : "map";
    case "array":
      return plain.items?.properties
        ? "records"
        : plain.items && plainSchema(plain.items).type === "string"
          ? "list"
          : "json";
    default:
      return "json";
  }
}

export function isDynamic(value: Json | undefined): boolean {
  return typeof value === "string" && /\$[A-Za-z0-9_]|\{\{/.test(value);
}
