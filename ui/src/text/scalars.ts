/** The values of YAML scalars: plain ones by the core schema of YAML 1.2, quoted and block ones by their own rules. */
import { numberOf, type Json } from "./json";

const NULLS = new Set(["", "~", "null", "Null", "NULL"]);
const BOOLEANS = new Map([
  ["true", true],
  ["True", true],
  ["TRUE", true],
  ["false", false],
  ["False", false],
  ["FALSE", false],
]);
const INTEGER = /^[-+]?[0-9]{1,20}$/;
const OCTAL_OR_HEX = /^(0o[0-7]{1,22}|0x[0-9a-fA-F]{1,16})$/;
const FLOAT = /^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$/;
const NOT_FINITE = /^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$/;
const ESCAPES: Record<string, string> = {
  "0": "\0",
  a: "\x07",
  b: "\b",
  t: "\t",
  "\t": "\t",
  n: "\n",
  v: "\v",
  f: "\f",
  r: "\r",
  e: "\x1b",
  " ": " ",
  '"': '"',
  "/": "/",
  "\\": "\\",
  N: "\x85",
  _: "\xa0",
  L: "\u2028",
  P: "\u2029",
};
const HEX_ESCAPES: Record<string, number> = { x: 2, u: 4, U: 8 };

/** The value that a plain scalar denotes. */
export function plainScalar(text: string): Json {
  if (NULLS.has(text)) return null;
  const boolean = BOOLEANS.get(text);
  if (boolean !== undefined) return boolean;
  if (OCTAL_OR_HEX.test(text) || INTEGER.test(text)) {
    const whole = BigInt(text.replace(/^\+/, ""));
    return whole < -(2n ** 63n) || whole >= 2n ** 64n ? text : numberOf(whole.toString());
  }
  if (!FLOAT.test(text) || /^[-+]*[0-9]+$/.test(text)) return text;
  return Number.isFinite(Number(text)) ? numberOf(jsonDigits(text)) : text;
}

/** A real number of YAML in the digits of JSON, which has no `+1.5`, `.5`, `5.` and `007.5`. */
function jsonDigits(text: string): string {
  const [, sign, whole, fraction, exponent] = /^([-+]?)0*([0-9]*)(?:\.([0-9]*))?([eE].*)?$/.exec(text) as unknown as [
    string,
    string,
    string,
    string | undefined,
    string | undefined,
  ];
  return `${sign === "-" ? "-" : ""}${whole || "0"}${fraction === undefined ? "" : `.${fraction || "0"}`}${exponent ?? ""}`;
}

/** Whether a plain scalar denotes a number that cannot be stored. */
export function isUnstorableNumber(text: string): boolean {
  return NOT_FINITE.test(text) || FLOAT.test(text) || OCTAL_OR_HEX.test(text);
}

/** Joins the lines of a flow scalar: one line break becomes a space, blank lines become line breaks. */
export function foldLines(text: string): string {
  if (!text.includes("\n")) return text;
  const lines = text.split("\n");
  let made = (lines[0] as string).replace(/[ \t\r]+$/, "");
  let breaks = 0;
  for (let at = 1; at < lines.length; at++) {
    const isLast = at === lines.length - 1;
    const line = (lines[at] as string).replace(/^[ \t]+/, "");
    const content = isLast ? line : line.replace(/[ \t\r]+$/, "");
    if (content === "" && !isLast) {
      breaks++;
      continue;
    }
    made += (breaks > 0 ? "\n".repeat(breaks) : " ") + content;
    breaks = 0;
  }
  return made;
}

export function singleQuoted(inner: string): string {
  return foldLines(inner).replaceAll("''", "'");
}

/** The value of a text between double quotes; null if an escape is unknown. */
export function doubleQuoted(inner: string): string | null {
  if (!inner.includes("\\")) return foldLines(inner);
  let made = "";
  let piece = "";
  let failed = false;
  // A line break that is escaped joins two lines without a space. Placeholders keep escaped characters out of folding.
  const kept: string[] = [];
  const keep = (text: string): string => {
    kept.push(text);
    return `\ue000${kept.length - 1}\ue001`;
  };
  for (let at = 0; at < inner.length; at++) {
    const char = inner[at] as string;
    if (char !== "\\") {
      piece += char;
      continue;
    }
    const next = inner[at + 1] ?? "";
    const line = /^\r?\n[ \t]*/.exec(inner.slice(at + 1));
    const digits = HEX_ESCAPES[next];
    if (line) {
      piece += keep("");
      at += line[0].length;
    } else if (digits !== undefined) {
      const hex = inner.slice(at + 2, at + 2 + digits);
      const code = /^[0-9a-fA-F]+$/.test(hex) && hex.length === digits ? Number.parseInt(hex, 16) : -1;
      if (code < 0 || code > 0x10ffff) failed = true;
      else piece += keep(String.fromCodePoint(code));
      at += 1 + digits;
    } else if (ESCAPES[next] !== undefined) {
      piece += keep(ESCAPES[next]);
      at += 1;
    } else failed = true;
  }
  made = foldLines(piece).replace(/\ue000(\d+)\ue001/g, (_, index: string) => kept[Number(index)] ?? "");
  return failed ? null : made;
}

/** The value of the lines of a block scalar, without their indentation. */
export function blockScalar(lines: readonly string[], folded: boolean, chomp: "" | "-" | "+"): string {
  let end = lines.length;
  while (end > 0 && lines[end - 1] === "") end--;
  const content = lines.slice(0, end);
  const trailing = lines.length - end;
  const text = folded ? fold(content) : content.join("\n");
  if (chomp === "+") return end === 0 ? "\n".repeat(trailing) : text + "\n".repeat(trailing + 1);
  return chomp === "-" || end === 0 ? text : `${text}\n`;
}

function fold(lines: readonly string[]): string {
  let made = "";
  let blanks = 0;
  let before: string | null = null;
  for (const line of lines) {
    if (line === "") {
      blanks++;
      continue;
    }
    const indented = /^[ \t]/.test(line);
    if (before === null) made += "\n".repeat(blanks);
    else if (indented || /^[ \t]/.test(before)) made += "\n".repeat(blanks + 1);
    else made += blanks > 0 ? "\n".repeat(blanks) : " ";
    made += line;
    blanks = 0;
    before = line;
  }
  return made;
}
