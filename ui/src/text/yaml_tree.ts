/**
 * Parses YAML into values with their positions: what workflow documents may use of YAML 1.2, so no anchors, aliases,
 * tags and keys that are not text. A parser of the whole language takes too long to read a document of 2,000
 * nodes after every change.
 */
import { blockScalar, doubleQuoted, isUnstorableNumber, plainScalar, singleQuoted, foldLines } from "./scalars";
import { TextEditError, type Entry, type Part, type Style } from "./tree";
import type { Unchanged } from "./unchanged";

const MAX_DEPTH = 200;
const SPACES = / */y;
const SPACES_AND_TABS = /[ \t]*/y;
const DOUBLE = /"(?:[^"\\]|\\[\s\S])*"/y;
const SINGLE = /'(?:[^']|'')*'/y;
const PLAIN = /(?:[^\s:#]|:(?=[^\s])|(?<=[^\s])#| +(?=[^\s#:]|:[^\s]))+/y;
const PLAIN_IN_FLOW = /(?:[^\s:#,[\]{}]|:(?=[^\s,[\]{}])|(?<=[^\s,[\]{}])#|[ \t]+(?=[^\s#:,[\]{}]|:[^\s,[\]{}]))+/y;
const COLON = / *:(?=[\s]|$)/y;
const BLOCK_HEADER = /[|>]([-+]?[1-9]?|[1-9][-+])[ \t]*(?:[ \t]#[^\n]*)?\r?(?=\n|$)/y;

export function parseYamlTree(text: string, unchanged?: Unchanged): Part {
  return new Parser(text, unchanged).document();
}

class Parser {
  private depth = 0;
  private brackets = 0;

  constructor(
    private readonly text: string,
    private readonly unchanged: Unchanged | undefined,
  ) {}

  private refusal(message: string, at: number): TextEditError {
    return new TextEditError(`the text cannot be edited: ${message}`, at);
  }

  private wrong(reason: string, at: number): TextEditError {
    return this.refusal(`not YAML: ${reason}`, at);
  }

  private match(pattern: RegExp, at: number): string | null {
    pattern.lastIndex = at;
    return pattern.exec(this.text)?.[0] ?? null;
  }

  private column(at: number): number {
    return at === 0 ? 0 : at - (this.text.lastIndexOf("\n", at - 1) + 1);
  }

  /** Only in brackets may tabs stand where spaces do, as the server reads documents. */
  private skipSpaces(at: number): number {
    const spaces = this.brackets > 0 ? SPACES_AND_TABS : SPACES;
    spaces.lastIndex = at;
    spaces.exec(this.text);
    return spaces.lastIndex;
  }

  private isMarker(at: number): boolean {
    const three = this.text.slice(at, at + 3);
    return (
      (three === "---" || three === "...") && /^\s?$/.test(this.text.slice(at + 3, at + 4)) && this.column(at) === 0
    );
  }

  /** The next character that is no space, line break or comment; the end of the text at a marker of documents. */
  private next(from: number): number {
    let at = from;
    for (;;) {
      at = this.skipSpaces(at);
      const char = this.text[at];
      if (char === "\t") throw this.wrong("a tab cannot indent or separate; use spaces", at);
      if (char === "#" && (at === 0 || /\s/.test(this.text[at - 1] as string))) {
        const end = this.text.indexOf("\n", at);
        if (end < 0) return this.text.length;
        at = end;
      } else if (char === "\n") at++;
      else if (char === "\r" && this.text[at + 1] === "\n") at += 2;
      else break;
    }
    return at;
  }

  private isEnd(at: number): boolean {
    return at >= this.text.length || this.isMarker(at);
  }

  document(): Part {
    let at = this.next(this.text.startsWith("\ufeff") ? 1 : 0);
    at = this.afterDirectives(at);
    if (this.text.startsWith("---", at) && this.isMarker(at)) at = this.next(at + 3);
    if (this.isEnd(at)) return this.empty(this.text.length, -1);
    const root = this.block(at, -1, false);
    const rest = this.next(root.end);
    if (rest < this.text.length) {
      if (!this.isMarker(rest)) throw this.wrong("unexpected text after the document", rest);
      if (this.text.startsWith("---", rest) || this.next(rest + 3) < this.text.length)
        throw this.refusal("a file holds one document", rest);
    }
    return root;
  }

  /** Directives change nothing of what a document may use. They end with `---`. */
  private afterDirectives(from: number): number {
    let at = from;
    let version = false;
    while (this.text[at] === "%" && this.column(at) === 0) {
      const line = this.text.slice(at).split(/\r?\n/, 1)[0] as string;
      if (/^%YAML(\s|$)/.test(line)) {
        if (version || !/^%YAML +1\.[0-9]+ *(#.*)?$/.test(line))
          throw this.wrong("the version of YAML is 1.1 or 1.2", at);
        version = true;
      }
      at = this.next(at + line.length);
    }
    if (at !== from && !(this.text.startsWith("---", at) && this.isMarker(at)))
      throw this.wrong("`---` is missing after the directives", at);
    return at;
  }

  private empty(at: number, column: number): Part {
    return { kind: "scalar", start: at, end: at, style: "plain", column, value: null, entries: [] };
  }

  private isDash(at: number): boolean {
    return this.text[at] === "-" && /^\s?$/.test(this.text.slice(at + 1, at + 2));
  }

  /** A value in block context. `inline` is true behind a key on its line, where no key and no dash may follow. */
  private block(at: number, column: number, inline: boolean): Part {
    if (++this.depth > MAX_DEPTH) throw this.refusal(`nested deeper than ${MAX_DEPTH} levels`, at);
    try {
      const char = this.text[at] as string;
      this.checkIndentation(at);
      if (this.isDash(at)) {
        if (inline) throw this.wrong("a list begins on a line of its own", at);
        return this.list(at, column);
      }
      if (char === "|" || char === ">") return this.blockText(at, column);
      if (char === "[" || char === "{") {
        const part = this.flow(at, column);
        if (this.match(COLON, part.end) !== null) throw this.refusal("a key must be text", at);
        return part;
      }
      const key = this.keyEnd(at);
      if (key !== null) {
        if (inline) throw this.wrong("a key is not allowed here", at);
        return this.object(at, column);
      }
      return char === '"' || char === "'" ? this.quoted(at, column) : this.plain(at, column);
    } finally {
      this.depth--;
    }
  }

  private checkIndentation(at: number): void {
    const start = at - this.column(at);
    const before = this.text.slice(start, at);
    if (this.brackets === 0 && before.includes("\t") && /^\s*$/.test(before))
      throw this.wrong("a tab cannot indent", at);
    const char = this.text[at] as string;
    if (char === "&" || char === "*") throw this.refusal("anchors and aliases are not supported", at);
    if (char === "!")
      throw this.refusal(`the tag \`${/^\S+/.exec(this.text.slice(at, at + 60))?.[0] ?? "!"}\` is not supported`, at);
    if (char === "?" && /^\s?$/.test(this.text.slice(at + 1, at + 2))) throw this.refusal("a key must be text", at);
    if ("%@`,]}".includes(char)) throw this.wrong(`a text cannot begin with ${char}`, at);
  }

  /** The end of the key that begins at a position, if a colon follows it on its line. */
  private keyEnd(at: number): number | null {
    const char = this.text[at];
    let end: number;
    if (char === '"' || char === "'") {
      const found = this.match(char === '"' ? DOUBLE : SINGLE, at);
      if (found === null) throw this.wrong("a text in quotes is not closed", at);
      if (found.includes("\n")) return null;
      end = at + found.length;
    } else {
      const found = this.match(PLAIN, at);
      if (found === null) return null;
      end = at + found.length;
    }
    return this.match(COLON, end) === null ? null : end;
  }

  private keyName(at: number, end: number): string {
    const raw = this.text.slice(at, end);
    if (raw[0] === '"') {
      const value = doubleQuoted(raw.slice(1, -1));
      if (value === null) throw this.wrong("an escape is unknown", at);
      return value;
    }
    return raw[0] === "'" ? singleQuoted(raw.slice(1, -1)) : raw;
  }

  private object(start: number, column: number): Part {
    const own = this.column(start);
    const made: Part = { kind: "object", start, end: start, style: "block", column, value: null, entries: [] };
    const seen = new Set<string>();
    let at = start;
    for (;;) {
      this.checkIndentation(at);
      const keyEnd = this.keyEnd(at);
      if (keyEnd === null || this.isDash(at)) throw this.wrong("a key with a colon is missing", at);
      const key = this.keyName(at, keyEnd);
      if (seen.has(key)) throw this.refusal(`the key \`${key}\` appears twice`, at);
      seen.add(key);
      const colon = keyEnd + (this.match(COLON, keyEnd) as string).length;
      const part = this.valueAfter(colon, own, true);
      made.entries.push({ key, start: at, keyEnd, part });
      made.end = Math.max(part.end, keyEnd);
      const following = this.following(part.start === part.end ? colon : part.end, own);
      if (following === null) return made;
      at = following;
    }
  }

  private list(start: number, column: number): Part {
    const own = this.column(start);
    const made: Part = { kind: "list", start, end: start, style: "block", column, value: null, entries: [] };
    let at = start;
    for (;;) {
      const part = this.unchanged?.part(at) ?? this.valueAfter(at + 1, own, false);
      made.entries.push({ key: made.entries.length, start: at, keyEnd: at, part });
      made.end = Math.max(part.end, at);
      const following = this.following(part.start === part.end ? at + 1 : part.end, own);
      if (following === null || !this.isDash(following)) return made;
      at = following;
    }
  }

  /** The value behind a colon or a dash: on its line, or on a later line that is indented more. */
  private valueAfter(mark: number, own: number, isKey: boolean): Part {
    const at = this.next(mark);
    if (this.isEnd(at)) return this.empty(mark, own);
    const sameLine = !this.text.slice(mark, at).includes("\n");
    if (sameLine) return this.block(at, own, isKey);
    const column = this.column(at);
    if (column > own) return this.block(at, own, false);
    // A list may begin in the column of its key.
    if (isKey && column === own && this.isDash(at)) return this.block(at, own, false);
    return this.empty(mark, own);
  }

  /** Where the next entry of a collection in this column begins; null if the collection ends. */
  private following(end: number, own: number): number | null {
    const at = this.next(end);
    if (this.isEnd(at)) return null;
    if (!this.text.slice(end, at).includes("\n") && end > 0 && this.text[end - 1] !== "\n")
      throw this.wrong("unexpected text behind a value", at);
    const column = this.column(at);
    if (column > own) throw this.wrong("the indentation does not match", at);
    return column === own ? at : null;
  }

  private scalarPart(start: number, end: number, style: Style, column: number, text: string): Part {
    const value = style === "plain" ? plainScalar(text) : text;
    if (style === "plain" && typeof value === "string" && isUnstorableNumber(text))
      throw this.refusal(`\`${text.slice(0, 30)}\` is not a number that can be stored`, start);
    return { kind: "scalar", start, end, style, column, value, entries: [] };
  }

  private quoted(at: number, column: number): Part {
    const isDouble = this.text[at] === '"';
    const found = this.match(isDouble ? DOUBLE : SINGLE, at);
    if (found === null) throw this.wrong("a text in quotes is not closed", at);
    const inner = found.slice(1, -1);
    const value = isDouble ? doubleQuoted(inner) : singleQuoted(inner);
    if (value === null) throw this.wrong("an escape is unknown", at);
    return this.scalarPart(at, at + found.length, isDouble ? "double" : "single", column, value);
  }

  /** A plain scalar, which continues on lines that are indented more than its collection. */
  private plain(at: number, column: number): Part {
    const first = this.match(PLAIN, at);
    if (first === null) throw this.wrong("a value is missing", at);
    let end = at + first.length;
    for (;;) {
      const rest = this.skipSpaces(end);
      if (this.text[rest] !== "\n" && this.text[rest] !== "\r") break;
      // A comment line ends a plain scalar, so blank lines alone are skipped here.
      const blank = /(?: *\r?\n)+ */y;
      const gap = this.match(blank, rest);
      if (gap === null) break;
      const line = rest + gap.length;
      if (line >= this.text.length || this.text[line] === "#" || this.column(line) <= column || this.isMarker(line))
        break;
      const more = this.match(PLAIN, line);
      if (more === null) break;
      if (this.match(COLON, line + more.length) !== null) throw this.wrong("a key is not allowed here", line);
      end = line + more.length;
    }
    return this.scalarPart(at, end, "plain", column, foldLines(this.text.slice(at, end)));
  }

  private blockText(at: number, column: number): Part {
    const header = this.match(BLOCK_HEADER, at);
    if (header === null) throw this.wrong("the head of a block of text is wrong", at);
    const marks = header.slice(1, 3);
    const chomp = marks.includes("-") ? "-" : marks.includes("+") ? "+" : "";
    const digit = /[1-9]/.exec(marks);
    let indent: number | null = digit ? Math.max(column, 0) + Number(digit[0]) : null;
    const lines: string[] = [];
    let from = at + header.length + 1;
    let end = at + header.replace(/[ \t]+#[^\n]*$/, "").trimEnd().length;
    let kept = 0;
    while (from <= this.text.length && from > 0) {
      if (from === this.text.length) break;
      const found = this.text.indexOf("\n", from);
      const stop = found < 0 ? this.text.length : found;
      const line = this.text.slice(from, stop).replace(/\r$/, "");
      const depth = line.length - line.replace(/^ +/, "").length;
      if (depth < line.length) {
        indent ??= depth > column ? depth : Infinity;
        if (depth < indent || (column < 0 && this.isMarker(from))) break;
        lines.push(line.slice(indent));
        end = from + line.length;
        kept = lines.length;
      } else {
        lines.push(indent === null ? "" : line.slice(indent));
        if (chomp === "+") end = from + line.length;
        if (lines.at(-1) !== "") kept = lines.length;
      }
      if (found < 0) break;
      from = stop + 1;
    }
    // Blank lines behind the text belong to it only if they are kept.
    const own = chomp === "+" ? lines : lines.slice(0, kept);
    return this.scalarPart(
      at,
      end,
      header[0] === "|" ? "literal" : "folded",
      column,
      blockScalar(own, header[0] === ">", chomp),
    );
  }

  private flow(start: number, column: number): Part {
    if (++this.depth > MAX_DEPTH) throw this.refusal(`nested deeper than ${MAX_DEPTH} levels`, start);
    this.brackets++;
    const isList = this.text[start] === "[";
    const closer = isList ? "]" : "}";
    const entries: Entry[] = [];
    const seen = new Set<string>();
    let at = this.nextInFlow(start + 1);
    while (this.text[at] !== closer) {
      if (isList) {
        const part = this.flowValue(at, column);
        entries.push({ key: entries.length, start: part.start, keyEnd: part.start, part });
        at = this.nextInFlow(part.end);
        if (this.text[at] === ":") throw this.refusal("a pair in a list needs braces", at);
      } else {
        const key = this.flowValue(at, column);
        if (key.kind !== "scalar") throw this.refusal("a key must be text", at);
        const name = key.style === "plain" ? this.text.slice(key.start, key.end) : (key.value as string);
        if (seen.has(name)) throw this.refusal(`the key \`${name}\` appears twice`, at);
        seen.add(name);
        const colon = this.nextInFlow(key.end);
        let part = this.empty(key.end, column);
        let end = key.end;
        if (this.text[colon] === ":") {
          if (this.text.slice(key.start, colon).includes("\n"))
            throw this.wrong("a key stands on one line with its colon", key.start);
          const behind = this.nextInFlow(colon + 1);
          part =
            this.text[behind] === "," || this.text[behind] === closer
              ? this.empty(colon + 1, column)
              : this.flowValue(behind, column);
          end = Math.max(part.end, colon + 1);
        }
        entries.push({ key: name, start: key.start, keyEnd: key.end, part });
        at = this.nextInFlow(end);
      }
      if (this.text[at] === ",") at = this.nextInFlow(at + 1);
      else if (this.text[at] !== closer) throw this.wrong(`a comma or ${closer} is missing`, at);
    }
    this.depth--;
    this.brackets--;
    return { kind: isList ? "list" : "object", start, end: at + 1, style: "flow", column, value: null, entries };
  }

  private nextInFlow(at: number): number {
    const found = this.next(at);
    if (this.isEnd(found)) throw this.wrong("a bracket is not closed", Math.min(found, this.text.length));
    return found;
  }

  private flowValue(at: number, column: number): Part {
    const char = this.text[at] as string;
    if (char === "[" || char === "{") return this.flow(at, column);
    if (char === '"' || char === "'") return this.quoted(at, column);
    this.checkIndentation(at);
    if ("|>#".includes(char) || (char === "-" && /^[\s,[\]{}]/.test(this.text.slice(at + 1, at + 2))))
      throw this.wrong(`a text cannot begin with ${char}`, at);
    const first = this.match(PLAIN_IN_FLOW, at);
    if (first === null) throw this.wrong("a value is missing", at);
    let end = at + first.length;
    for (;;) {
      const gap = /(?:[ \t]*\r?\n)+[ \t]*/y;
      const blank = this.match(gap, end);
      const more = blank === null ? null : this.match(PLAIN_IN_FLOW, end + blank.length);
      if (blank === null || more === null || this.text[end + blank.length] === "#") break;
      end += blank.length + more.length;
    }
    return this.scalarPart(at, end, "plain", column, foldLines(this.text.slice(at, end)));
  }
}
