/**
 * Reads templates and expressions as far as references, names and highlighting need it: where each reference to a node
 * begins and ends. Evaluation and all other checks are the server's.
 */

export type Names = { nodes: ReadonlySet<string>; titles: ReadonlyMap<string, string> };

/** A reference to a node: where its id is written. `quoted` is a node named by its title, which a rename keeps. */
export type Reference = { id: string; start: number; end: number; titled: boolean };

export type TokenKind = "reference" | "word" | "keyword" | "literal" | "text" | "number" | "operator" | "bracket";
export type Token = { kind: TokenKind; start: number; end: number; name?: string };

export const ROOTS: ReadonlySet<string> = new Set(["trigger", "input", "item", "index", "json", "execution", "error"]);
const KEYWORDS = new Set(["and", "or", "not", "in", "if", "else", "for", "contains"]);
const CONSTANTS = new Set(["true", "false", "null", "True", "False", "None"]);
const ID = /[A-Za-z0-9_-]+/y;
const WORD = /[\p{L}\p{N}_]+/uy;
const WORD_CHAR = /[\p{L}\p{N}_]/u;
const QUOTED: Record<string, RegExp> = { '"': /"[^"\\]*(?:\\[\s\S][^"\\]*)*"/y, "'": /'[^'\\]*(?:\\[\s\S][^'\\]*)*'/y };
const NUMBER = /(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?/y;
const OPERATOR = /\?\?|&&|\|\||\*\*|\/\/|==|!=|<=|>=|[-+*/%<>!,:|?=.]/y;
const CLOSERS: Record<string, string> = { "(": ")", "[": "]", "{": "}" };

function match(pattern: RegExp, text: string, at: number): string | null {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? null;
}

/** The possible ends of an id that begins at a position, longest first, never inside of a word. */
function idEnds(text: string, start: number): number[] {
  const found = match(ID, text, start);
  if (!found) return [];
  let end = start + found.length;
  const ends = end === text.length || !WORD_CHAR.test(text[end] ?? "") ? [end] : [];
  for (;;) {
    end = end > start + 1 ? text.lastIndexOf("-", end - 1) : -1;
    if (end <= start) return ends;
    ends.push(end);
  }
}

type Root = { reference: Reference | null; end: number };

/** The root that begins with the `$` at a position; null if the name is unknown. */
function rootAt(text: string, start: number, names: Names): Root | null {
  for (const end of idEnds(text, start + 1)) {
    const word = text.slice(start + 1, end);
    if (word === "node") {
      const member = memberAt(text, end, names);
      if (member) return member;
    }
    if (ROOTS.has(word)) return { reference: null, end };
    if (names.nodes.has(word)) return { reference: { id: word, start: start + 1, end, titled: false }, end };
  }
  return null;
}

function memberAt(text: string, start: number, names: Names): Root | null {
  const named = (name: string, from: number, to: number, end: number, quoted: boolean): Root | null => {
    const id = names.nodes.has(name) ? name : names.titles.get(name);
    return id === undefined
      ? null
      : { reference: { id, start: from, end: to, titled: quoted || !names.nodes.has(name) }, end };
  };
  if (text[start] === ".") {
    for (const end of idEnds(text, start + 1)) {
      const found = named(text.slice(start + 1, end), start + 1, end, end, false);
      if (found) return found;
    }
  }
  if (text[start] === "[") {
    const quote = QUOTED[text[start + 1] ?? ""];
    const key = quote && match(quote, text, start + 1);
    if (key && text[start + 1 + key.length] === "]")
      return named(key.slice(1, -1), start + 2, start + key.length, start + key.length + 2, true);
  }
  return null;
}

/** The position of the `}}` that closes an expression; -1 if it is not closed. */
export function expressionEnd(text: string, start: number): number {
  let depth = 0;
  const mark = /["'{}]/g;
  mark.lastIndex = start;
  for (let found = mark.exec(text); found; found = mark.exec(text)) {
    const char = found[0];
    if (char === "{") depth++;
    else if (char === "}") {
      if (depth === 0 && text.startsWith("}}", found.index)) return found.index;
      depth--;
    } else {
      const quoted = match(QUOTED[char] as RegExp, text, found.index);
      if (quoted === null) return -1;
      mark.lastIndex = found.index + quoted.length;
    }
  }
  return -1;
}

export type Lexed = { tokens: Token[]; references: Reference[]; complete: boolean };

/** Reads an expression between two positions. `complete` is false if it cannot be compiled as it stands. */
export function lexExpression(text: string, start: number, stop: number, names: Names): Lexed {
  const source = text.slice(0, stop);
  const tokens: Token[] = [];
  const references: Reference[] = [];
  const open: string[] = [];
  const loops = loopWords(source.slice(start));
  let complete = source.slice(start).trim() !== "";
  let at = start;
  const add = (kind: TokenKind, end: number, name?: string): void => {
    tokens.push(name === undefined ? { kind, start: at, end } : { kind, start: at, end, name });
    at = end;
  };
  while (at < stop) {
    const char = source[at] as string;
    const last = tokens.at(-1);
    const member = last?.kind === "operator" && source[last.start] === "." && last.end - last.start === 1;
    if (/\s/.test(char)) {
      at++;
    } else if (char === "$") {
      const root = rootAt(source, at, names);
      if (!root) {
        complete = false;
        add("reference", idEnds(source, at + 1)[0] ?? at + 1);
      } else {
        if (root.reference) references.push(root.reference);
        add("reference", root.end, root.reference?.id);
      }
    } else if (QUOTED[char]) {
      const quoted = match(QUOTED[char], source, at);
      if (quoted === null) complete = false;
      add("text", quoted === null ? stop : at + quoted.length);
    } else if (
      /[0-9]/.test(char) ||
      (char === "." &&
        /[0-9]/.test(source[at + 1] ?? "") &&
        last?.kind !== "word" &&
        last?.kind !== "reference" &&
        last?.kind !== "bracket")
    ) {
      add("number", at + (match(NUMBER, source, at) ?? char).length);
    } else if (CLOSERS[char]) {
      open.push(CLOSERS[char]);
      add("bracket", at + 1);
    } else if (")]}".includes(char)) {
      if (open.pop() !== char) complete = false;
      add("bracket", at + 1);
    } else if (match(WORD, source, at)) {
      const word = match(WORD, source, at) as string;
      const end = at + word.length;
      const next = source[end];
      if (member) add("word", end);
      else if ((word === "r" || word === "R") && (next === '"' || next === "'")) add("word", end);
      else if (CONSTANTS.has(word)) add("literal", end);
      else if (KEYWORDS.has(word)) add("keyword", end);
      else if (names.nodes.has(word) && !loops.has(word) && !isName(source, end)) {
        references.push({ id: word, start: at, end, titled: false });
        add("reference", end, word);
      } else {
        const dashed =
          next === "-" && !names.nodes.has(word)
            ? idEnds(source, at).find((each) => names.nodes.has(source.slice(at, each)))
            : undefined;
        if (dashed !== undefined && !loops.has(word)) {
          references.push({ id: source.slice(at, dashed), start: at, end: dashed, titled: false });
          add("reference", dashed, source.slice(at, dashed));
        } else add("word", end);
      }
    } else {
      const operator = match(OPERATOR, source, at);
      if (operator === null) complete = false;
      add("operator", at + (operator ?? char).length);
    }
  }
  return { tokens, references, complete: complete && open.length === 0 };
}

/** Whether a word is called or names an argument, so that it denotes no node. */
function isName(source: string, end: number): boolean {
  return /^\s*(?:\(|=(?!=))/.test(source.slice(end));
}

function loopWords(source: string): Set<string> {
  const found = new Set<string>();
  let binding = false;
  for (const [word] of source.matchAll(/[\p{L}\p{N}_]+/gu)) {
    if (word === "for" || word === "in") binding = word === "for";
    else if (binding) found.add(word);
  }
  return found;
}

/** The expressions and references of a template, in order. */
export function lexTemplate(text: string, names: Names): Lexed {
  const found: Lexed = { tokens: [], references: [], complete: true };
  const mark = /\$|\{\{/g;
  for (let each = mark.exec(text); each; each = mark.exec(text)) {
    const at = each.index;
    if (text[at] === "{") {
      const end = expressionEnd(text, at + 2);
      found.tokens.push({ kind: "bracket", start: at, end: at + 2 });
      const inner = lexExpression(text, at + 2, end < 0 ? text.length : end, names);
      found.tokens.push(...inner.tokens);
      found.references.push(...inner.references);
      found.complete &&= inner.complete && end >= 0;
      if (end < 0) break;
      found.tokens.push({ kind: "bracket", start: end, end: end + 2 });
      mark.lastIndex = end + 2;
    } else if (text[at + 1] === "$") {
      mark.lastIndex = at + 2;
    } else {
      const root = rootAt(text, at, names);
      if (!root) continue;
      if (root.reference) found.references.push(root.reference);
      const path = /(?:\.[\p{L}_][\p{L}\p{N}_]*|\[-?[0-9]+\]|\["[^"]*"\]|\['[^']*'\])*/uy;
      const end = root.end + (match(path, text, root.end) ?? "").length;
      found.tokens.push({ kind: "reference", start: at, end, ...(root.reference ? { name: root.reference.id } : {}) });
      mark.lastIndex = end;
    }
  }
  return found;
}

/** Reads a text that is an expression as a whole, with or without braces around it. */
export function lexWhole(text: string, names: Names): Lexed {
  const start = text.length - text.trimStart().length;
  const end = text.trimEnd().length;
  if (text.startsWith("{{", start) && expressionEnd(text, start + 2) === end - 2)
    return lexExpression(text, start + 2, end - 2, names);
  return lexExpression(text, 0, text.length, names);
}

/** The text with references to nodes renamed; one that does not compile stays as it is. */
export function renameReferences(text: string, ids: ReadonlyMap<string, string>, names: Names, whole: boolean): string {
  const { references, complete } = whole ? lexWhole(text, names) : lexTemplate(text, names);
  if (!complete) return text;
  let made = text;
  for (const each of [...references].sort((a, b) => b.start - a.start)) {
    const to = ids.get(each.id);
    if (to !== undefined && !each.titled) made = made.slice(0, each.start) + to + made.slice(each.end);
  }
  return made;
}
