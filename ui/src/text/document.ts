/** A document as text with the positions of its values and its style. */
import { parseJsonTree } from "./json_tree";
import {
  TextEditError,
  applyEdits,
  partAt,
  pathText,
  plainOf,
  type Entry,
  type Format,
  type Json,
  type Part,
  type Path,
  type TextEdit,
} from "./tree";
import { Unchanged } from "./unchanged";
import { Writer } from "./writing";
import { parseYamlTree } from "./yaml_tree";

const FLOW_OBJECT = /\{( ?)[^{}\s]/;
const COMPACT_COLON = /"\s*:\S/;
const LIST_IN_OBJECT = /^( *)[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\r?\n(?:[ \t]*(?:#[^\n]*)?\r?\n)*( *)- /m;
const JSON_STEP = /[[{]\r?\n( +)\S/;

/** Whether a text is meant as JSON or as YAML: a document in JSON begins with a brace. */
export function guessFormat(text: string): Format {
  return /^[\ufeff \t\r\n]*\{/.test(text) ? "json" : "yaml";
}

export function parseTree(text: string, format: Format): Part {
  return format === "json" ? parseJsonTree(text) : parseYamlTree(text);
}

export function decode(text: string, format: Format): Json {
  return plainOf(parseTree(text, format));
}

export class SourceText {
  readonly format: Format;
  readonly root: Part;
  readonly value: Json;
  private made: Writer | undefined;

  constructor(
    readonly text: string,
    format?: Format,
    unchanged?: Unchanged,
  ) {
    const wanted = format ?? guessFormat(text);
    [this.format, this.root] = parsedAs(text, wanted, unchanged);
    this.value = plainOf(this.root);
  }

  /** The document after edits. Only what they touch is parsed; other values stay the same objects. */
  after(edits: readonly TextEdit[]): SourceText {
    return edits.length === 0
      ? this
      : new SourceText(applyEdits(this.text, edits), this.format, new Unchanged(this.root, this.text, edits));
  }

  /** The style of the document, from the first place that shows each of its properties. */
  get writer(): Writer {
    if (this.made) return this.made;
    const newline = this.text.includes("\r\n") ? "\r\n" : "\n";
    const endsWithNewline = this.text.endsWith("\n");
    if (this.format === "json") {
      const step = JSON_STEP.exec(this.text);
      this.made = new Writer({
        asJson: true,
        padded: true,
        spaced: !COMPACT_COLON.test(this.text),
        step: step?.[1]?.length ?? 2,
        listStep: 2,
        newline,
        endsWithNewline,
      });
    } else {
      const flow = FLOW_OBJECT.exec(this.text);
      const listed = LIST_IN_OBJECT.exec(this.text);
      const listStep = listed ? Math.max((listed[2] ?? "").length - (listed[1] ?? "").length, 0) : 2;
      this.made = new Writer({
        asJson: false,
        padded: !flow || flow[1] === " ",
        spaced: true,
        step: 2,
        listStep,
        newline,
        endsWithNewline,
      });
    }
    return this.made;
  }

  part(path: Path): Part {
    const found = partAt(this.root, path);
    if (!found) throw new TextEditError(`the document has no \`${pathText(path)}\``);
    return found;
  }

  lineStart(at: number): number {
    return at <= 0 ? 0 : this.text.lastIndexOf("\n", at - 1) + 1;
  }

  /** The position after the line break of a line. */
  lineEnd(at: number): number {
    const found = this.text.indexOf("\n", at);
    return found < 0 ? this.text.length : found + 1;
  }

  column(at: number): number {
    return at - this.lineStart(at);
  }

  /** Whether only spaces precede a position on its line. */
  beginsLine(at: number): boolean {
    return /^ *$/.test(this.text.slice(this.lineStart(at), at));
  }

  /** The position after the colon or the dash of an entry. */
  afterColon(owner: Part, entry: Entry): number {
    if (owner.kind === "list") return owner.style === "block" ? entry.start + 1 : entry.start;
    return this.text.indexOf(":", entry.keyEnd) + 1;
  }

  /** The lines of an entry of a block list or object, with the comments directly above at its column and those below
   * that are indented more. */
  chunk(entry: Entry): [number, number] {
    const column = this.column(entry.start);
    const comment = `${" ".repeat(column)}#`;
    let start = this.lineStart(entry.start);
    while (start > 0) {
      const above = this.lineStart(start - 1);
      if (!this.text.startsWith(comment, above)) break;
      start = above;
    }
    let end = this.lineEnd(Math.max(entry.part.end, entry.keyEnd));
    while (end < this.text.length) {
      const below = this.lineEnd(end);
      const line = this.text.slice(end, below).trimEnd();
      const content = line.replace(/^ +/, "");
      if (!content.startsWith("#") || line.length - content.length <= column) break;
      end = below;
    }
    return [start, end];
  }

  /** The start of the blank lines directly above a line. */
  blankBefore(from: number): number {
    let at = from;
    while (at > 0) {
      const above = this.lineStart(at - 1);
      if (this.text.slice(above, at).trim()) break;
      at = above;
    }
    return at;
  }

  /** The end of the blank lines that begin at a line. */
  blankAfter(from: number): number {
    let at = from;
    while (at < this.text.length) {
      const below = this.lineEnd(at);
      if (this.text.slice(at, below).trim()) break;
      at = below;
    }
    return at;
  }
}

/** `{a: b}` is YAML only, although a document that begins with a brace is meant as JSON. */
function parsedAs(text: string, format: Format, unchanged?: Unchanged): [Format, Part] {
  if (format === "yaml") return ["yaml", parseYamlTree(text, unchanged)];
  try {
    return ["json", parseJsonTree(text, unchanged)];
  } catch (error) {
    if (!(error instanceof TextEditError) || !error.message.includes("not JSON")) throw error;
    try {
      return ["yaml", parseYamlTree(text)];
    } catch {
      throw error;
    }
  }
}
