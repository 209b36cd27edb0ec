/**
 * The same text with all line ends as `\n`, which is how a text pane holds it, and where its characters stand in the
 * original. A pane that kept `\r` would put the cursor behind it, and what is typed there would split a line end.
 */
import type { TextEdit } from "./tree";

export class LineEnds {
  readonly plain: string;
  /** What ends a line of the document. */
  readonly newline: string;
  /** The places of `\r\n`. */
  private readonly pairs: number[] = [];

  constructor(readonly text: string) {
    this.plain = text.includes("\r") ? plainOf(text) : text;
    this.newline = text.includes("\r\n") ? "\r\n" : "\n";
    for (let at = text.indexOf("\r\n"); at >= 0; at = text.indexOf("\r\n", at + 2)) this.pairs.push(at);
  }

  /** The place in the original of a place in the plain text. */
  toText(place: number): number {
    return place + this.count((pair, index) => pair - index < place);
  }

  toPlain(place: number): number {
    return place - this.count((pair) => pair < place);
  }

  /** The edits of the original that edits of the plain text mean. */
  editsOf(edits: readonly TextEdit[]): TextEdit[] {
    return edits.map(({ start, end, text }) => ({
      start: this.toText(start),
      end: this.toText(end),
      text: plainOf(text).replaceAll("\n", this.newline),
    }));
  }

  private count(isBefore: (pair: number, index: number) => boolean): number {
    let low = 0;
    let high = this.pairs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(this.pairs[middle] as number, middle)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

export function plainOf(text: string): string {
  return text.replace(/\r\n?/g, "\n");
}
