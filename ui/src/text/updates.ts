/** Edits that change a value of a document, insert an entry or remove one, in the style of what is around it. */
import { SourceText, decode } from "./document";
import { toJson } from "./json";
import { opcodes } from "./matching";
import {
  TextEditError,
  applyEdits,
  encode,
  entryOf,
  isObject,
  pathText,
  plainOf,
  same,
  type Entry,
  type Format,
  type Json,
  type Key,
  type Part,
  type Path,
  type TextEdit,
} from "./tree";

type Obj = { [key: string]: Json };

/** The edits that give a text another value; only the lines that differ in value change. */
export function updateEdits(source: SourceText, value: Json): TextEdit[] {
  if (same(source.value, value)) return [];
  const edits = new Editor(source).change(source.root, value);
  if (!same(decode(applyEdits(source.text, edits), source.format), value))
    throw new TextEditError("the text uses syntax that cannot be edited in place");
  return edits;
}

export function update(text: string, value: Json, format?: Format): string {
  return applyEdits(text, updateEdits(new SourceText(text, format), value));
}

const size = (value: Json): number => (Array.isArray(value) || isObject(value) ? Object.keys(value).length : 0);
const range = (from: number, to: number): number[] =>
  Array.from({ length: Math.max(to - from, 0) }, (_, at) => from + at);

/** Computes the text edits of changes to one document. */
export class Editor {
  constructor(private readonly source: SourceText) {}

  private get text(): string {
    return this.source.text;
  }

  /** Sets the value at a path; a key that an object does not have is added. */
  put(path: Path, value: Json): TextEdit[] {
    const last = path.at(-1);
    if (last === undefined) return this.change(this.source.root, value);
    const above = path.slice(0, -1);
    const owner = this.source.part(above);
    if (entryOf(owner, last)) return this.changeEntry(owner, last, value);
    if (owner.kind === "list" || typeof last === "number")
      throw new TextEditError(`the document has no \`${pathText(path)}\``);
    if (owner.kind === "scalar") {
      if (owner.value !== null) throw new TextEditError(`\`${pathText(above)}\` is not an object`);
      return this.put(above, { [last]: value });
    }
    const anchor = owner.entries.at(-1);
    if (!anchor) return this.put(above, { [last]: value });
    return this.insertKeys(owner, anchor, { [last]: value });
  }

  /** Removes an entry with the comments that belong to it. */
  remove(path: Path): TextEdit[] {
    const last = path.at(-1);
    const above = path.slice(0, -1);
    const owner = this.source.part(above);
    if (last === undefined || !entryOf(owner, last))
      throw new TextEditError(`the document has no \`${pathText(path)}\``);
    if (owner.entries.length === 1) return this.put(above, owner.kind === "list" ? [] : {});
    return this.removeAt(owner, [owner.entries.findIndex((each) => each.key === last)]);
  }

  /** Removes elements of a list at positions in ascending order. */
  removeElements(path: Path, positions: readonly number[]): TextEdit[] {
    const owner = this.source.part(path);
    if (positions.length === owner.entries.length) return this.put(path, []);
    return this.removeAt(owner, positions);
  }

  /** Inserts an element into a list. */
  insert(path: Path, index: number, value: Json): TextEdit[] {
    const owner = this.source.part(path);
    if (owner.kind === "scalar" && owner.value === null) return this.put(path, [value]);
    if (owner.kind !== "list" || index < 0 || index > owner.entries.length)
      throw new TextEditError(`nothing can be inserted at \`${pathText([...path, index])}\``);
    if (owner.entries.length === 0) return this.put(path, [value]);
    return this.insertElements(owner, index, [value]);
  }

  /** The edits that change the value at the root, or one that stays of the same kind. */
  change(part: Part, value: Json): TextEdit[] {
    const writer = this.source.writer;
    if (part.kind === "object" && isObject(value) && part.entries.length > 0 && size(value) > 0)
      return this.changeObject(part, value);
    if (part.kind === "list" && Array.isArray(value) && part.entries.length > 0 && value.length > 0)
      return this.changeList(part, value);
    if (part !== this.source.root) throw new TextEditError("a value can be replaced only in its list or object");
    if (writer.manner.asJson) return [{ start: part.start, end: part.end, text: writer.pretty(value, 0) }];
    return [
      { start: part.start, end: part.end, text: size(value) > 0 ? writer.block(value, 0) : writer.inline(value) },
    ];
  }

  private changeEntry(owner: Part, key: Key, value: Json): TextEdit[] {
    const entry = entryOf(owner, key) as Entry;
    const part = entry.part;
    if (same(plainOf(part), value)) return [];
    const kind = Array.isArray(value) ? "list" : isObject(value) ? "object" : "scalar";
    if (kind === part.kind && kind !== "scalar" && part.entries.length > 0 && size(value) > 0)
      return this.change(part, value);
    if (kind === "scalar" && part.kind === "scalar" && part.start !== part.end)
      return [{ start: part.start, end: part.end, text: this.scalar(part, owner, value) }];
    return [this.replace(owner, entry, value)];
  }

  private scalar(part: Part, owner: Part, value: Json): string {
    let style = part.style === "folded" ? "literal" : part.style;
    let column = Math.max(part.column, 0) + 2;
    if (style === "literal") {
      const body = this.text.slice(part.start, part.end).split("\n").slice(1);
      const first = body.find((line) => line.trim());
      if (first !== undefined) column = first.length - first.replace(/^ +/, "").length;
      if (typeof value === "string" && !value.includes("\n")) style = "plain";
    }
    return this.source.writer.scalar(value, style, owner.style === "flow", column);
  }

  /** Whether a comment follows on the line of a position. */
  private isCommented(at: number): boolean {
    const cut = this.text.indexOf("\n", at);
    return this.text
      .slice(at, cut < 0 ? undefined : cut)
      .trimStart()
      .startsWith("#");
  }

  /** Replaces a value by one of another kind, or an empty collection by one with entries. */
  private replace(owner: Part, entry: Entry, value: Json): TextEdit {
    const part = entry.part;
    const writer = this.source.writer;
    if (owner.style === "flow") {
      const shown =
        writer.manner.asJson && this.isMultiline(owner)
          ? writer.pretty(value, this.source.column(this.lineContent(entry.start)))
          : writer.inline(value);
      if (part.start === part.end)
        return { start: this.source.afterColon(owner, entry), end: part.end, text: ` ${shown}` };
      return { start: part.start, end: part.end, text: shown };
    }
    const column = this.source.column(entry.start);
    const start = this.source.afterColon(owner, entry);
    const end = Math.max(part.end, start);
    // Behind a block of text a comment would become part of it.
    if (endsWithLines(value) && this.isCommented(end)) return { start, end, text: ` ${writer.inline(value)}` };
    if (owner.kind === "list") return { start, end, text: writer.element(value, column).slice(1) };
    // A list of nodes or edges has one entry per line from its first entry on.
    const lines = Array.isArray(value) && value.some(isObject);
    const shown = writer.afterKey(value, column, lines);
    const note = this.text.slice(start, part.start);
    const cut = note.indexOf("\n");
    if (shown.startsWith(writer.manner.newline) && cut >= 0 && note.slice(0, cut).includes("#")) {
      // A comment on the line of the key stays there.
      return { start: start + note.slice(0, cut).replace(/\r+$/, "").length, end, text: shown };
    }
    return { start, end, text: shown };
  }

  /** The position of the first character of a line that is not a space. */
  private lineContent(at: number): number {
    const start = this.source.lineStart(at);
    const before = this.text.slice(start, at);
    return start + before.length - before.replace(/^ +/, "").length;
  }

  private isMultiline(owner: Part): boolean {
    return this.text.slice(owner.start, owner.end).includes("\n");
  }

  private changeObject(part: Part, value: Obj): TextEdit[] {
    const has = (key: Key): boolean => Object.hasOwn(value, key);
    const removed = part.entries.flatMap((each, at) => (has(each.key) ? [] : [at]));
    if (removed.length === part.entries.length) return [this.rewrite(part, value)];
    const edits: TextEdit[] = removed.length > 0 ? this.removeAt(part, removed) : [];
    const stayed = new Map(part.entries.filter((each) => has(each.key)).map((each) => [each.key as string, each]));
    for (const key of stayed.keys()) edits.push(...this.changeEntry(part, key, value[key] as Json));
    let after = [...stayed.values()].at(-1) as Entry;
    let added: Obj | null = null;
    const groups: [Entry, Obj][] = [];
    for (const [key, each] of Object.entries(value)) {
      const known = stayed.get(key);
      if (known) {
        after = known;
        added = null;
      } else {
        if (!added) {
          added = {};
          groups.push([after, added]);
        }
        added[key] = each;
      }
    }
    for (const [anchor, keys] of groups) edits.push(...this.insertKeys(part, anchor, keys, removed));
    return edits;
  }

  /** Writes a list or object anew in its own style. */
  private rewrite(part: Part, value: Json): TextEdit {
    const writer = this.source.writer;
    if (part.style === "flow") {
      const shown =
        writer.manner.asJson && this.isMultiline(part)
          ? writer.pretty(value, this.source.column(this.lineContent(part.start)))
          : writer.inline(value);
      return { start: part.start, end: part.end, text: shown };
    }
    const column = this.source.column(part.start);
    return { start: part.start, end: part.end, text: writer.block(value, column).slice(column) };
  }

  private insertKeys(owner: Part, after: Entry, keys: Obj, removed: readonly number[] = []): TextEdit[] {
    const writer = this.source.writer;
    if (owner.style === "flow") {
      const gap = writer.manner.asJson && !writer.manner.spaced ? "" : " ";
      const shown = Object.entries(keys).map(
        ([key, each]) => `${writer.key(key, true)}${gap}${this.nested(owner, after, each)}`,
      );
      return [this.insertFlow(owner, owner.entries.indexOf(after) + 1, shown, removed)];
    }
    const column = this.source.column(after.start);
    const lines = Object.entries(keys).map(
      ([key, each]) =>
        `${" ".repeat(column)}${writer.key(key, false)}${writer.afterKey(each, column, key === "nodes" || key === "edges")}`,
    );
    return [this.insertLines(this.source.chunk(after)[1], lines)];
  }

  /** A value for a list or object in flow style, on several lines if its neighbour is. */
  private nested(owner: Part, beside: Entry, value: Json): string {
    const writer = this.source.writer;
    if (
      writer.manner.asJson &&
      (this.text.slice(beside.part.start, beside.part.end).includes("\n") ||
        (this.isMultiline(owner) && owner.kind === "object"))
    ) {
      return writer.pretty(value, this.source.column(this.lineContent(beside.start)));
    }
    return writer.inline(value);
  }

  private insertLines(at: number, lines: readonly string[]): TextEdit {
    const newline = this.source.writer.manner.newline;
    let shown = lines.map((line) => line + newline).join("");
    // The last line of the document has no line break, and keeps none.
    if (at > 0 && this.text[at - 1] !== "\n") shown = newline + shown.slice(0, shown.length - newline.length);
    return { start: at, end: at, text: shown };
  }

  private insertFlow(owner: Part, index: number, shown: readonly string[], removed: readonly number[] = []): TextEdit {
    const { spaced, newline } = this.source.writer.manner;
    // What follows the last entry that stays is removed together with the comma before it.
    const isLast = range(index, owner.entries.length).every((at) => removed.includes(at));
    const beside = owner.entries[isLast ? index - 1 : index] as Entry;
    let separator = spaced ? ", " : ",";
    if (this.source.beginsLine(beside.start)) separator = `,${newline}${" ".repeat(this.source.column(beside.start))}`;
    const body = shown.join(separator);
    if (!isLast) return { start: beside.start, end: beside.start, text: body + separator };
    const end = Math.max(beside.part.end, beside.keyEnd);
    return { start: end, end, text: separator + body };
  }

  /** Removes some entries, but not all of them. */
  private removeAt(owner: Part, positions: readonly number[]): TextEdit[] {
    const gone = new Set(positions);
    return positions.map((at) => {
      if (owner.style === "flow") return this.removeFlow(owner, gone, at);
      return this.source.beginsLine((owner.entries[at] as Entry).start)
        ? this.removeLines(owner, at, gone)
        : this.removeCompact(owner, at);
    });
  }

  private removeFlow(owner: Part, gone: Set<number>, at: number): TextEdit {
    const entry = owner.entries[at] as Entry;
    const following = owner.entries[at + 1];
    if (following && range(at + 1, owner.entries.length).some((later) => !gone.has(later)))
      return { start: entry.start, end: following.start, text: "" };
    const before = owner.entries[at - 1] as Entry;
    return { start: Math.max(before.part.end, before.keyEnd), end: Math.max(entry.part.end, entry.keyEnd), text: "" };
  }

  private keptBefore(at: number, gone: Set<number>): boolean {
    return range(0, at).some((earlier) => !gone.has(earlier));
  }

  private removeLines(owner: Part, at: number, gone: Set<number>): TextEdit {
    let [start] = this.source.chunk(owner.entries[at] as Entry);
    const end = this.removedEnd(owner, at, gone);
    if (this.keptBefore(at, gone)) {
      const before = owner.entries[at - 1] as Entry;
      // Blank lines may belong to the block of text above.
      start = Math.max(this.source.blankBefore(start), this.source.lineEnd(Math.max(before.part.end, before.keyEnd)));
      if (end === this.text.length && !this.text.endsWith("\n")) start -= this.source.writer.manner.newline.length;
    }
    if (at > 0 && gone.has(at - 1)) start = Math.max(start, this.removedEnd(owner, at - 1, gone));
    return { start, end, text: "" };
  }

  /** Where the removal of an entry ends; the removal of the next one begins there. */
  private removedEnd(owner: Part, at: number, gone: Set<number>): number {
    const entry = owner.entries[at] as Entry;
    const following = owner.entries[at + 1];
    if (!this.source.beginsLine(entry.start)) return (following as Entry).start;
    const end = this.source.chunk(entry)[1];
    const kept = range(0, at)
      .filter((each) => !gone.has(each))
      .at(-1);
    if (kept === undefined) return Math.min(this.source.blankAfter(end), this.source.chunk(following as Entry)[0]);
    return this.takesBlankLines(owner.entries[kept] as Entry) ? this.source.blankAfter(end) : end;
  }

  /** Whether blank lines below an entry are part of its value: it ends with a block of text, `|+` or `>+`. */
  private takesBlankLines(entry: Entry): boolean {
    let { part } = entry;
    while (part.entries.length > 0) part = (part.entries.at(-1) as Entry).part;
    const [header] = this.text.slice(part.start, this.source.lineEnd(part.start)).split("#");
    return (part.style === "literal" || part.style === "folded") && (header as string).includes("+");
  }

  /** Removes the first entry of an object or list that begins on the line of a dash: the next one moves there. */
  private removeCompact(owner: Part, at: number): TextEdit {
    const entry = owner.entries[at] as Entry;
    const following = owner.entries[at + 1] as Entry;
    if (this.text.slice(Math.max(entry.part.end, entry.keyEnd), following.start).includes("#"))
      throw new TextEditError("a comment stands between the dash and the next key");
    return { start: entry.start, end: following.start, text: "" };
  }

  private insertElements(owner: Part, index: number, values: readonly Json[]): TextEdit[] {
    const entries = owner.entries;
    if (owner.style === "flow") {
      const beside = (entries[index] ?? entries.at(-1)) as Entry;
      return [
        this.insertFlow(
          owner,
          index,
          values.map((each) => this.nested(owner, beside, each)),
        ),
      ];
    }
    const column = this.source.column(owner.start);
    const neighbour = this.neighbour(owner, index);
    return [
      this.insertChunks(
        owner,
        index,
        values.map((each) => this.element(neighbour, each, column)),
      ),
    ];
  }

  private neighbour(owner: Part, index: number): Entry {
    return owner.entries[Math.min(Math.max(index - 1, 0), owner.entries.length - 1)] as Entry;
  }

  /** The lines of a new element: on one line if its neighbour is, else as a block. */
  private element(neighbour: Entry, value: Json, column: number): string {
    const inline = isObject(value) && neighbour.part.kind === "object" ? neighbour.part.style === "flow" : undefined;
    return " ".repeat(column) + this.source.writer.element(value, column, inline);
  }

  /** Inserts whole entries into a block list, with blank lines between them if its entries have some. */
  private insertChunks(owner: Part, index: number, chunks: readonly string[]): TextEdit {
    const newline = this.source.writer.manner.newline;
    const separated = this.isSeparated(owner, index);
    const entry = owner.entries[index];
    if (entry) {
      if (!this.source.beginsLine(entry.start)) {
        const first = (chunks[0] as string).replace(/^ +/, "");
        const rest = chunks
          .slice(1)
          .map((chunk) => chunk + newline)
          .join("");
        return {
          start: owner.start,
          end: owner.start,
          text: `${first}${newline}${rest}${" ".repeat(this.source.column(owner.start))}`,
        };
      }
      const at = this.source.chunk(entry)[0];
      return {
        start: at,
        end: at,
        text: chunks.map((each) => `${each}${newline}${separated ? newline : ""}`).join(""),
      };
    }
    const at = this.source.chunk(owner.entries.at(-1) as Entry)[1];
    const lines = chunks.flatMap((chunk) => (separated ? ["", chunk] : [chunk]));
    return this.insertLines(
      at,
      separated && this.takesBlankLines(owner.entries.at(-1) as Entry) ? lines.slice(1) : lines,
    );
  }

  /** Whether blank lines stand between the entries around an index. */
  private isSeparated(owner: Part, index: number): boolean {
    if (owner.entries.length === 1) return false;
    const right = Math.min(Math.max(index, 1), owner.entries.length - 1);
    const start = this.source.chunk(owner.entries[right] as Entry)[0];
    return this.source.blankBefore(start) < start;
  }

  /** Aligns two lists by the identity of their elements; changes those that stay, inserts and removes the others. */
  private changeList(part: Part, value: Json[]): TextEdit[] {
    const old = part.entries.map((each) => identity(plainOf(each.part)));
    const now = value.map(identity);
    const removed: number[] = [];
    const inserted: [number, number[]][] = [];
    const edits: TextEdit[] = [];
    for (const { kind, start, end, first, last } of opcodes(old, now)) {
      const scalars = (): boolean => range(start, end).every((at) => part.entries[at]?.part.kind === "scalar");
      if (kind === "equal" || (kind === "replace" && end - start === last - first && scalars())) {
        for (let at = start; at < end; at++)
          edits.push(...this.changeEntry(part, at, value[first + at - start] as Json));
      } else if (kind === "replace" && !value.slice(first, last).some((each) => !identity(each).startsWith("value:"))) {
        const both = Math.min(end - start, last - first);
        for (let at = 0; at < both; at++) edits.push(...this.changeEntry(part, start + at, value[first + at] as Json));
        removed.push(...range(start + both, end));
        if (first + both < last) inserted.push([start + both, range(first + both, last)]);
      } else {
        removed.push(...range(start, end));
        if (first < last) inserted.push([end, range(first, last)]);
      }
    }
    if (removed.length === part.entries.length) return [this.rewrite(part, value)];
    const moved = new Map(part.style === "block" ? removed.map((at) => [old[at] as string, at]) : []);
    for (const [index, which] of inserted)
      edits.push(
        ...this.insertOrMove(
          part,
          index,
          which.map((at) => value[at] as Json),
          moved,
        ),
      );
    if (removed.length > 0) edits.push(...this.removeAt(part, removed));
    return edits;
  }

  /** Inserts elements; one that is removed elsewhere keeps its lines and comments. */
  private insertOrMove(part: Part, index: number, values: readonly Json[], moved: Map<string, number>): TextEdit[] {
    if (part.style === "flow" || !values.some((each) => moved.has(identity(each))))
      return this.insertElements(part, index, values);
    const column = this.source.column(part.start);
    const neighbour = this.neighbour(part, index);
    const chunks = values.map((each) => {
      const at = moved.get(identity(each));
      const entry = at === undefined ? undefined : part.entries[at];
      if (at === undefined || !entry || !this.source.beginsLine(entry.start))
        return this.element(neighbour, each, column);
      const [start, end] = this.source.chunk(entry);
      const inner = this.changeEntry(part, at, each).map((edit) => ({
        ...edit,
        start: edit.start - start,
        end: edit.end - start,
      }));
      return applyEdits(this.text.slice(start, end), inner).replace(/[\r\n]+$/, "");
    });
    return [this.insertChunks(part, index, chunks)];
  }
}

/** What identifies an element of a list: the id of a node or edge, the ends of an edge, else the value. */
function identity(value: Json): string {
  if (isObject(value)) {
    if (typeof value.id === "string") return `id:${value.id}`;
    if (value.src !== undefined && value.dst !== undefined)
      return `edge:${toJson([String(value.src), String(value.dst), String(value.label ?? null)])}`;
  }
  return `value:${encode(value)}`;
}

/** Whether the last text of a value has several lines, so that its block form ends with them. */
function endsWithLines(value: Json): boolean {
  if (Array.isArray(value)) return value.length > 0 && endsWithLines(value[value.length - 1] as Json);
  if (isObject(value)) return Object.keys(value).length > 0 && endsWithLines(Object.values(value).at(-1) as Json);
  return typeof value === "string" && value.includes("\n");
}
