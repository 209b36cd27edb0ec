/** A JSON value as a tree. Long lists and strings are shown in pieces, so that large values stay cheap. */
import { ChevronDown, ChevronRight } from "lucide-react";
import { useState, type JSX } from "react";
import { isNumeric, toJson, type Json } from "../../text/json";
import { FileLink, fileOf } from "../../parts/file_link";
import { count, plural } from "../../parts/format";

const PIECE = 100;
const TEXT = 2_000;

function summary(value: Json[] | { [key: string]: Json }): string {
  if (Array.isArray(value)) return `[${plural(value.length, "item")}]`;
  return `{${plural(Object.keys(value).length, "key")}}`;
}

function isBranch(value: Json): value is Json[] | { [key: string]: Json } {
  return typeof value === "object" && value !== null && !isNumeric(value);
}

function Leaf({ value }: { value: Json }): JSX.Element {
  const [whole, setWhole] = useState(false);
  if (typeof value === "string") {
    const cut = !whole && value.length > TEXT;
    return (
      <span className="tree-string">
        {toJson(cut ? value.slice(0, TEXT) : value)}
        {cut && (
          <button type="button" className="tag" onClick={() => setWhole(true)}>
            … {count(value.length - TEXT)} more characters
          </button>
        )}
      </span>
    );
  }
  if (isNumeric(value)) return <span className="tree-number">{String(value)}</span>;
  return <span className="tree-word">{String(value)}</span>;
}

function Branch({
  name,
  value,
  depth,
  open,
}: {
  name?: string | undefined;
  value: Json;
  depth: number;
  open: number;
}): JSX.Element {
  const [shown, setShown] = useState(depth < open);
  const [pieces, setPieces] = useState(1);
  if (!isBranch(value)) {
    return (
      <li>
        <div className="tree-line">
          {name !== undefined && <span className="tree-key">{name}:</span>}
          <Leaf value={value} />
        </div>
      </li>
    );
  }
  const entries: [string, Json][] = Array.isArray(value)
    ? value.map((each, index) => [String(index), each])
    : Object.entries(value);
  const limit = pieces * PIECE;
  const file = Array.isArray(value) ? null : fileOf(value);
  return (
    <li>
      <div className="tree-line">
        <button
          type="button"
          className="tree-toggle"
          aria-expanded={shown}
          aria-label={`${shown ? "Collapse" : "Expand"} ${name ?? "value"}`}
          onClick={() => setShown(!shown)}
        >
          {shown ? <ChevronDown size={13} aria-hidden="true" /> : <ChevronRight size={13} aria-hidden="true" />}
        </button>
        {name !== undefined && <span className="tree-key">{name}:</span>}
        <span className="dim">{summary(value)}</span>
        {file && <FileLink file={file} />}
      </div>
      {shown && entries.length > 0 && (
        <ul>
          {entries.slice(0, limit).map(([key, each]) => (
            <Branch key={key} name={key} value={each} depth={depth + 1} open={open} />
          ))}
          {entries.length > limit && (
            <li>
              <button type="button" className="tag" onClick={() => setPieces(pieces + 1)}>
                {count(entries.length - limit)} more
              </button>
            </li>
          )}
        </ul>
      )}
    </li>
  );
}

export function Tree({ value, open = 2 }: { value: Json; open?: number }): JSX.Element {
  return (
    <ul className="tree">
      <Branch value={value} depth={0} open={open} />
    </ul>
  );
}
