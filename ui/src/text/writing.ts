/** Writes plain data as YAML or JSON text, in the style of the document it becomes part of. */
import { isNumeric, toJson } from "./json";
import { isObject, type Json, type Style } from "./tree";
import { isUnstorableNumber, plainScalar } from "./scalars";

const MAX_INLINE_CHARS = 90;
// Words and dates that readers of YAML 1.1 do not take as text.
const AMBIGUOUS = /^(?:yes|no|on|off|<<|=)$|^[0-9]+[-:]/i;
const INDICATORS = new Set("-?:,[]{}#&*!|>'\"%@`");
const FLOW_INDICATORS = /[,[\]{}:?]/;
const UNPRINTABLE = /[^\x20-\x7e\xa1-\u2027\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd\u{10000}-\u{10ffff}]/u;
const UNPRINTABLES = new RegExp(UNPRINTABLE.source, "gu");

export type Manner = {
  asJson: boolean;
  padded: boolean;
  spaced: boolean;
  step: number;
  listStep: number;
  newline: string;
  /** Whether the last line of the document has a line break. Without it a block at the end loses its own. */
  endsWithNewline: boolean;
};

const collection = (value: Json): value is Json[] | { [key: string]: Json } =>
  typeof value === "object" && value !== null && !isNumeric(value);
const isEmpty = (value: Json): boolean =>
  Array.isArray(value) ? value.length === 0 : isObject(value) && Object.keys(value).length === 0;
const length = (text: string): number => [...text].length;

export class Writer {
  constructor(readonly manner: Manner) {}

  /** The text of a scalar, in a style if that can represent it. `column` is where a block begins. */
  scalar(value: Json, style: Style, flow: boolean, column = 0): string {
    if (typeof value !== "string") return toJson(value);
    if (this.manner.asJson) return toJson(value);
    const keepsEnd = this.manner.endsWithNewline || !value.endsWith("\n");
    if (style === "literal" && !flow && keepsEnd && fitsLiteral(value)) return this.literal(value, column);
    if (style === "single" && !UNPRINTABLE.test(value)) return `'${value.replaceAll("'", "''")}'`;
    if (style !== "double" && isPlain(value, flow)) return value;
    return quoted(value);
  }

  private literal(value: string, column: number): string {
    const lines = value.replace(/\n$/, "").split("\n");
    const indented = lines.map((line) => (line ? " ".repeat(column) + line : ""));
    return [value.endsWith("\n") ? "|" : "|-", ...indented].join(this.manner.newline);
  }

  key(name: string, flow: boolean): string {
    return `${this.scalar(name, "plain", flow || this.manner.asJson)}:`;
  }

  /** A value on one line. */
  inline(value: Json): string {
    const { asJson, padded, spaced } = this.manner;
    const comma = spaced ? ", " : ",";
    const colon = spaced || !asJson ? " " : "";
    if (Array.isArray(value)) return `[${value.map((each) => this.inline(each)).join(comma)}]`;
    if (isObject(value)) {
      const pad = padded && !isEmpty(value) && !asJson ? " " : "";
      const inner = Object.entries(value).map(([name, each]) => `${this.key(name, true)}${colon}${this.inline(each)}`);
      return `{${pad}${inner.join(comma)}${pad}}`;
    }
    return this.scalar(value, "plain", true);
  }

  fitsInline(value: Json, column: number): boolean {
    return (
      isEmpty(value) ||
      (depthOf(value) <= 2 && !hasLines(value) && column + length(this.inline(value)) <= MAX_INLINE_CHARS)
    );
  }

  /** What follows the colon of a key in this column of a block object. */
  afterKey(value: Json, column: number, forceBlock = false): string {
    const { step, listStep, newline } = this.manner;
    if (!collection(value)) return ` ${this.scalar(value, styleOf(value), false, column + step)}`;
    if (isEmpty(value) || (this.fitsInline(value, column + 12) && !forceBlock)) return ` ${this.inline(value)}`;
    return newline + this.block(value, column + (Array.isArray(value) ? listStep : step));
  }

  /** The lines of a list or object in block style, without the last line break. */
  block(value: Json, column: number): string {
    const margin = " ".repeat(column);
    const lines = Array.isArray(value)
      ? value.map((each) => margin + this.element(each, column))
      : Object.entries(value as { [key: string]: Json }).map(
          ([name, each]) => `${margin}${this.key(name, false)}${this.afterKey(each, column)}`,
        );
    return lines.join(this.manner.newline);
  }

  /** An element of a block list whose dash is in this column; an object begins on the line of the dash. */
  element(value: Json, column: number, inline?: boolean): string {
    if (!collection(value)) return `- ${this.scalar(value, styleOf(value), false, column + 2)}`;
    if ((inline ?? this.fitsInline(value, column + 2)) || isEmpty(value)) return `- ${this.inline(value)}`;
    return `- ${this.block(value, column + 2).replace(/^ +/, "")}`;
  }

  /** JSON on several lines; the first line begins in this column. */
  pretty(value: Json, column: number): string {
    if (!collection(value) || isEmpty(value)) return this.inline(value);
    const { step, spaced, newline } = this.manner;
    const margin = " ".repeat(column + step);
    const inner = Array.isArray(value)
      ? value.map((each) => this.pretty(each, column + step))
      : Object.entries(value).map(
          ([name, each]) => `${this.key(name, true)}${spaced ? " " : ""}${this.pretty(each, column + step)}`,
        );
    const [opener, closer] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
    return `${opener}${newline}${margin}${inner.join(`,${newline}${margin}`)}${newline}${" ".repeat(column)}${closer}`;
  }
}

function styleOf(value: Json): Style {
  return typeof value === "string" && value.includes("\n") ? "literal" : "plain";
}

/** A text in double quotes, as JSON and YAML read it. */
export function quoted(value: string): string {
  return toJson(value).replace(UNPRINTABLES, (char) => {
    const code = char.codePointAt(0) ?? 0;
    return code <= 0xffff ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

/** Whether every reader of YAML takes a text without quotes as this text. */
function isPlain(text: string, flow: boolean): boolean {
  if (!text || INDICATORS.has(text[0] ?? "") || text !== text.trim() || UNPRINTABLE.test(text)) return false;
  if (typeof plainScalar(text) !== "string" || isUnstorableNumber(text) || AMBIGUOUS.test(text)) return false;
  if (
    text.includes(": ") ||
    text.includes(" #") ||
    text.endsWith(":") ||
    text.startsWith("---") ||
    text.startsWith("...")
  )
    return false;
  return !flow || !FLOW_INDICATORS.test(text);
}

function fitsLiteral(text: string): boolean {
  const lines = text.replace(/\n$/, "").split("\n");
  if (lines.length <= 1 && !text.endsWith("\n")) return false;
  if (text === "" || text[0] === " " || text[0] === "\n" || text.endsWith("\n\n")) return false;
  return !lines.some((line) => UNPRINTABLE.test(line) || (line !== "" && line.trim() === ""));
}

function depthOf(value: Json): number {
  if (!collection(value)) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

function hasLines(value: Json): boolean {
  if (collection(value)) return Object.values(value).some(hasLines);
  return typeof value === "string" && value.includes("\n");
}
