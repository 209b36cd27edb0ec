/** The fields of a credential type, from its JSON Schema, and what a form sends. */
import type { Schemas } from "../../api/client";
import { typedNumber, type Numeric } from "../../text/json";

type Property = { type?: string; enum?: string[]; default?: unknown; anyOf?: Property[] };

/** A field of a credential type as the form shows it. */
export type CredentialField = {
  name: string;
  required: boolean;
  secret: boolean;
  number: boolean;
  choices: string[];
  preset: string;
};

export function fieldsOf(type: Pick<Schemas["CredentialTypeView"], "fields" | "secrets">): CredentialField[] {
  const schema = type.fields as { properties?: Record<string, Property>; required?: string[] };
  return Object.entries(schema.properties ?? {}).map(([name, property]) => ({
    name,
    required: schema.required?.includes(name) ?? false,
    secret: type.secrets.includes(name),
    number: [property, ...(property.anyOf ?? [])].some((each) => each.type === "integer" || each.type === "number"),
    choices: property.enum ?? [],
    preset: typeof property.default === "string" ? property.default : "",
  }));
}

/** What a form sends: fields that were filled in, numbers as numbers. */
export function valuesOf(
  fields: readonly CredentialField[],
  texts: Readonly<Record<string, string>>,
): Record<string, string | Numeric> {
  const numbers = new Set(fields.filter((each) => each.number).map((each) => each.name));
  return Object.fromEntries(
    Object.entries(texts).flatMap(([name, text]) =>
      text === "" || name === "" ? [] : [[name, numbers.has(name) ? (typedNumber(text) ?? text) : text]],
    ),
  );
}
