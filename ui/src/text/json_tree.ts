/** Parses JSON into values with their positions. */
import { fromJson, numberOf } from "./json";
import { TextEditError, type Entry, type Json, type Part } from "./tree";
import type { Unchanged } from "./unchanged";

// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON permits no control characters in texts.
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y;
const SPACE = /[ \t\r\n]*/y;
const WORDS: Record<string, Json> = { true: true, false: false, null: null };
const MAX_DEPTH = 200;

export function parseJsonTree(text: string, unchanged?: Unchanged): Part {
  const parser = new Parser(text, unchanged);
  const root = parser.value(text.startsWith("\ufeff") ? 1 : 0, -1, 0);
  const rest = parser.skip(root.end);
  if (rest < text.length) throw parser.refusal(rest, "trailing characters");
  return root;
}

class Parser {
  constructor(
    private readonly text: string,
    private readonly unchanged: Unchanged | undefined,
  ) {}

  skip(at: number): number {
    SPACE.lastIndex = at;
    SPACE.exec(this.text);
    return SPACE.lastIndex;
  }

  refusal(at: number, reason: string): TextEditError {
    return new TextEditError(`the text cannot be edited: not JSON: ${reason}`, at);
  }

  private match(pattern: RegExp, at: number): string | null {
    pattern.lastIndex = at;
    return pattern.exec(this.text)?.[0] ?? null;
  }

  value(from: number, column: number, depth: number): Part {
    const at = this.skip(from);
    const char = this.text[at];
    if (char === undefined) throw this.refusal(at, "the text ends too early");
    if (char === '"') {
      const [value, end] = this.quoted(at);
      return { kind: "scalar", start: at, end, style: "double", column, value, entries: [] };
    }
    if (char === "[" || char === "{") return this.collection(at, column, depth + 1);
    const number = this.match(NUMBER, at);
    if (number)
      return {
        kind: "scalar",
        start: at,
        end: at + number.length,
        style: "plain",
        column,
        value: numberOf(number),
        entries: [],
      };
    for (const [word, value] of Object.entries(WORDS)) {
      if (this.text.startsWith(word, at))
        return { kind: "scalar", start: at, end: at + word.length, style: "plain", column, value, entries: [] };
    }
    throw this.refusal(at, "a value is missing");
  }

  private quoted(at: number): [string, number] {
    const found = this.match(STRING, at);
    if (found === null) throw this.refusal(at, "a text is not closed");
    return [fromJson(found) as string, at + found.length];
  }

  private collection(start: number, column: number, depth: number): Part {
    if (depth > MAX_DEPTH) throw this.refusal(start, "nested too deeply");
    const isList = this.text[start] === "[";
    const closer = isList ? "]" : "}";
    const entries: Entry[] = [];
    const seen = new Set<string>();
    let at = this.skip(start + 1);
    while (this.text[at] !== closer) {
      const begin = at;
      if (isList) {
        const part = this.unchanged?.part(at) ?? this.value(at, column, depth);
        entries.push({ key: entries.length, start: part.start, keyEnd: begin, part });
        at = this.skip(part.end);
      } else {
        if (this.text[at] !== '"') throw this.refusal(at, "a key in quotes is missing");
        const [key, keyEnd] = this.quoted(at);
        if (seen.has(key)) throw new TextEditError(`the text cannot be edited: the key \`${key}\` appears twice`, at);
        seen.add(key);
        const colon = this.skip(keyEnd);
        if (this.text[colon] !== ":") throw this.refusal(colon, "a colon is missing");
        const part = this.value(colon + 1, column, depth);
        entries.push({ key, start: begin, keyEnd, part });
        at = this.skip(part.end);
      }
      if (this.text[at] === ",") {
        at = this.skip(at + 1);
        if (this.text[at] === closer) throw this.refusal(at, "a value is missing after the comma");
      } else if (this.text[at] !== closer) throw this.refusal(at, `a comma or ${closer} is missing`);
    }
    return { kind: isList ? "list" : "object", start, end: at + 1, style: "flow", column, value: null, entries };
  }
}
