/**
 * The only reader and the only writer of JSON of the web interface. A number is its digits: what JavaScript would write
 * in other digits than it read (`9007199254740993`, `-0.0`, `1.0`, `1E3`) is kept as text, so that a value that passes
 * through a view, a form or the storage of the browser comes out as it went in.
 */

const TOKEN = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$/;
// What only a number can be that is not written as JavaScript would write it. A text may look like it; that costs time only.
const UNUSUAL = /(?:^|[,:[])\s*(?:-0|-?[0-9]{16}|-?[0-9]+[.eE])[-+.eE0-9]*(?=\s*(?:[,\]}]|$))/;
const ENDS = new Set([",", "]", "}", " ", "\n", "\r", "\t"]);

/** A value of the server itself, such as a place or a rate, whose numbers are computed with and not shown digit by digit. */
export function withNumbers<T>(value: T): T {
  if (value instanceof Digits) return Number(value.text) as T;
  if (Array.isArray(value)) return value.map(withNumbers) as T;
  return isObject(value)
    ? (Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withNumbers(each)])) as T)
    : value;
}

/** A number that JavaScript would write in other digits. Compares by value: `<` and `>` also beyond 2^53. */
export class Digits {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): string {
    return this.text;
  }

  valueOf(): number | bigint {
    const value = Number(this.text);
    return /^-?[0-9]+$/.test(this.text) && !Number.isSafeInteger(value) ? BigInt(this.text) : value;
  }

  /** The writer of the browser would write an object. */
  toJSON(): never {
    throw new UnwrittenDigits("numbers that keep their digits are written by `toJson`");
  }
}

class UnwrittenDigits extends TypeError {}

export type Numeric = number | Digits;
export type Json = null | boolean | Numeric | string | Json[] | { [key: string]: Json };

export function isNumeric(value: unknown): value is Numeric {
  return typeof value === "number" || value instanceof Digits;
}

export function isObject(value: unknown): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Digits);
}

/** The number that digits of JSON denote. */
export function numberOf(text: string): Numeric {
  const value = Number(text);
  return String(value) === text ? value : new Digits(text);
}

/** The number that a person typed; null if it is none. JSON has no `+1`, `.5`, `5.` and `007`; people do. */
export function typedNumber(typed: string): Numeric | null {
  const parts = /^([-+]?)0*([0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?$/.exec(typed.trim());
  if (!parts || !/[0-9]/.test(typed.replace(/[eE].*$/s, ""))) return null;
  const [, sign = "", whole = "", fraction = "", exponent = ""] = parts;
  const text = `${sign === "-" ? "-" : ""}${whole || "0"}${fraction === "." ? "" : fraction}${exponent}`;
  return TOKEN.test(text) ? numberOf(text) : null;
}

export function isWhole(value: Numeric): boolean {
  return typeof value === "number"
    ? Number.isInteger(value)
    : typeof value.valueOf() === "bigint" || Number.isInteger(value.valueOf());
}

/** Negative, zero or positive, as of `a - b`, exact also beyond 2^53. */
export function compare(a: Numeric, b: Numeric): number {
  const [one, other] = [a.valueOf(), b.valueOf()];
  return one < other ? -1 : one > other ? 1 : 0;
}

/** Whether two scalars are the same JSON; numbers are if their digits are. */
export function isSame(a: unknown, b: unknown): boolean {
  return a === b || (a instanceof Digits && b instanceof Digits && a.text === b.text);
}

/** Reads JSON. Throws a SyntaxError. */
export function fromJson(text: string): unknown {
  // The reader of the browser refuses what is not JSON, and says where. What its reviver tells about digits is not used:
  // V8 mistakes keys with escapes there.
  const value: unknown = JSON.parse(text);
  return UNUSUAL.test(text) ? new Reader(text).value() : value;
}

/** Reads a text that is known to be JSON. */
class Reader {
  private at = 0;
  private readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** The character that begins the next token, which has been passed. */
  private next(): string {
    for (;;) {
      const char = this.text[this.at++] as string;
      if (char !== " " && char !== "\n" && char !== "\r" && char !== "\t") return char;
    }
  }

  value(first = this.next()): Json {
    if (first === '"') return this.string();
    if (first === "{") return this.object();
    if (first === "[") return this.list();
    const start = this.at - 1;
    while (this.at < this.text.length && !ENDS.has(this.text[this.at] as string)) this.at++;
    const token = this.text.slice(start, this.at);
    return token === "null" ? null : token === "true" ? true : token === "false" ? false : numberOf(token);
  }

  private string(): string {
    const start = this.at;
    let escaped = false;
    for (; this.text[this.at] !== '"'; this.at++) {
      if (this.text[this.at] !== "\\") continue;
      escaped = true;
      this.at++;
    }
    this.at++;
    return escaped ? (JSON.parse(this.text.slice(start - 1, this.at)) as string) : this.text.slice(start, this.at - 1);
  }

  private object(): { [key: string]: Json } {
    const made: { [key: string]: Json } = {};
    for (let char = this.next(); char !== "}"; char = this.next()) {
      if (char === ",") continue;
      const key = this.string();
      this.next(); // the colon
      setKey(made, key, this.value());
    }
    return made;
  }

  private list(): Json[] {
    const made: Json[] = [];
    for (let char = this.next(); char !== "]"; char = this.next()) if (char !== ",") made.push(this.value(char));
    return made;
  }
}

/** Sets an own key, also one such as `__proto__`. */
export function setKey(owner: { [key: string]: Json }, key: string, value: Json): void {
  if (key === "__proto__")
    Object.defineProperty(owner, key, { value, enumerable: true, configurable: true, writable: true });
  else owner[key] = value;
}

/** Writes JSON, on one line or indented. Keys whose value is undefined are left out. */
export function toJson(value: unknown, indent = 0): string {
  try {
    return JSON.stringify(value, null, indent) ?? "null";
  } catch (error) {
    if (!(error instanceof UnwrittenDigits)) throw error;
    return written(value, " ".repeat(indent), indent > 0 ? "\n" : "");
  }
}

/** `margin` begins a line of the object or list that holds the value. */
function written(value: unknown, step: string, margin: string): string {
  if (value instanceof Digits) return value.text;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const inner = margin + step;
  if (Array.isArray(value))
    return value.length === 0
      ? "[]"
      : `[${inner}${value.map((each) => written(each, step, inner)).join(`,${inner}`)}${margin}]`;
  const colon = step ? ": " : ":";
  const members = Object.entries(value).flatMap(([key, each]) =>
    each === undefined ? [] : [`${JSON.stringify(key)}${colon}${written(each, step, inner)}`],
  );
  return members.length === 0 ? "{}" : `{${inner}${members.join(`,${inner}`)}${margin}}`;
}
