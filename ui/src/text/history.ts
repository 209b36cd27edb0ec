/** One stack of text edits for all views of a document: undo gives back the same characters. */
import { applyEdits, type TextEdit } from "./tree";

/** `renamed`: a node that the step renamed, from one id to another. */
export type Step = {
  edits: TextEdit[];
  inverse: TextEdit[];
  label: string;
  gesture: string | null;
  renamed?: [string, string];
};
export type Saved = { text: string; undo: Step[]; redo: Step[] };

export const MAX_STEPS = 1_000;

/** The edits that take back other edits. */
export function inverseOf(text: string, edits: readonly TextEdit[]): TextEdit[] {
  const sorted = [...edits].sort((a, b) => a.start - b.start || a.end - b.end);
  let shift = 0;
  return sorted.map((each) => {
    const start = each.start + shift;
    shift += each.text.length - (each.end - each.start);
    return { start, end: start + each.text.length, text: text.slice(each.start, each.end) };
  });
}

/** The smallest edit that turns one text into another. */
export function differenceOf(before: string, after: string): TextEdit[] {
  if (before === after) return [];
  let start = 0;
  const most = Math.min(before.length, after.length);
  while (start < most && before[start] === after[start]) start++;
  let tail = 0;
  while (tail < most - start && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  return [{ start, end: before.length - tail, text: after.slice(start, after.length - tail) }];
}

export class History {
  private undos: Step[] = [];
  private redos: Step[] = [];

  constructor(
    public text: string,
    saved?: Saved,
  ) {
    if (saved && saved.text === text) {
      this.undos = saved.undo;
      this.redos = saved.redo;
    }
  }

  get canUndo(): boolean {
    return this.undos.length > 0;
  }

  get canRedo(): boolean {
    return this.redos.length > 0;
  }

  get undoLabel(): string {
    return this.undos.at(-1)?.label ?? "";
  }

  get redoLabel(): string {
    return this.redos.at(-1)?.label ?? "";
  }

  /** The nodes that the steps have renamed: their first ids by their present ones. */
  get renamed(): ReadonlyMap<string, string> {
    const found = new Map<string, string>();
    for (const { renamed } of this.undos) {
      if (!renamed) continue;
      const [from, to] = renamed;
      found.set(to, found.get(from) ?? from);
      found.delete(from);
    }
    return found;
  }

  /** Applies edits as one step. Steps of the same gesture, such as typing in one field, are undone together. */
  apply(edits: readonly TextEdit[], label: string, gesture: string | null = null, renamed?: [string, string]): void {
    if (edits.length === 0) return;
    const last = this.undos.at(-1);
    const after = applyEdits(this.text, edits);
    if (gesture !== null && last?.gesture === gesture && this.redos.length === 0) {
      const before = applyEdits(this.text, last.inverse);
      const joined = differenceOf(before, after);
      this.undos[this.undos.length - 1] = { edits: joined, inverse: inverseOf(before, joined), label, gesture };
    } else {
      this.undos.push({
        edits: [...edits],
        inverse: inverseOf(this.text, edits),
        label,
        gesture,
        ...(renamed && { renamed }),
      });
      if (this.undos.length > MAX_STEPS) this.undos.shift();
    }
    this.redos = [];
    this.text = after;
  }

  undo(): Step | null {
    const step = this.undos.pop();
    if (!step) return null;
    this.text = applyEdits(this.text, step.inverse);
    this.redos.push(step);
    return step;
  }

  redo(): Step | null {
    const step = this.redos.pop();
    if (!step) return null;
    this.text = applyEdits(this.text, step.edits);
    this.undos.push({ ...step, gesture: null });
    return step;
  }

  /** What a draft keeps: the newest steps within a size. */
  saved(maxBytes: number): Saved {
    const size = (step: Step): number =>
      [...step.edits, ...step.inverse].reduce((sum, each) => sum + each.text.length + 40, 60);
    const undo: Step[] = [];
    let left = maxBytes - this.text.length;
    for (const step of [...this.undos].reverse()) {
      left -= size(step);
      if (left < 0) break;
      undo.unshift(step);
    }
    return { text: this.text, undo, redo: left > 0 ? this.redos.slice(-50) : [] };
  }
}
