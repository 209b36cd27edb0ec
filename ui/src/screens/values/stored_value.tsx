/** A stored value as a tree that is read level by level, so that a value of 64 MB costs what is looked at. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight } from "lucide-react";
import { createContext, useContext, useState, type JSX } from "react";
import { readJson, type Schemas } from "../../api/client";
import { Failure, Skeleton } from "../../parts/controls";
import { FileLink, fileOf } from "../../parts/file_link";
import { bytes, count, plural } from "../../parts/format";
import { say } from "../../parts/toasts";
import { toJson } from "../../text/json";
import { partPath, pointerOf, stepOf } from "./pointers";
import { ValueSearch } from "./value_search";

export type Part = Schemas["ValuePart"];
export type Entry = Omit<Schemas["ValueEntry"], "entries"> & { entries: Entry[] | null };

const MEMBERS = 100;
const CHARS = 10_000;
/** Levels that are read at once: two of them are open at first. */
const DEPTH = 2;
/** A level with more members than this is shown with its members closed. */
const MAX_OPEN = 20;

/** Values below this many bytes are read at a glance and have no search. */
const MIN_SEARCHED_BYTES = 1_000;

/** The pointer of the match that is shown. */
const Found = createContext<string | null>(null);

/** Reads what follows `offset`, piece by piece, as far as asked for. */
function useRest(path: string, pointer: string, offset: number, enabled: boolean) {
  return useInfiniteQuery({
    queryKey: ["part", path, pointer, offset],
    initialPageParam: offset,
    queryFn: ({ pageParam, signal }) =>
      readJson<Part>(partPath(path, { pointer, depth: DEPTH, offset: pageParam }), signal),
    getNextPageParam: (part: Part) => part.next ?? undefined,
    enabled,
    staleTime: Infinity,
    retry: false,
  });
}

function useFirst(path: string, pointer: string) {
  return useQuery({
    queryKey: ["part", path, pointer],
    queryFn: ({ signal }) => readJson<Part>(partPath(path, { pointer, depth: DEPTH, offset: 0 }), signal),
    staleTime: Infinity,
    retry: false,
  });
}

/** A value by its address. `reference` is how an expression names it, or empty. */
export function StoredValue({ path, reference }: { path: string; reference: string }): JSX.Element {
  const first = useFirst(path, "");
  if (first.isError) {
    return (first.error as { status?: number }).status === 404 ? (
      <p className="dim">No output.</p>
    ) : (
      <Failure error={first.error} retry={() => void first.refetch()} />
    );
  }
  if (!first.data) return <Skeleton rows={3} height={12} />;
  return (
    <>
      {first.data.bytes >= MIN_SEARCHED_BYTES && <ValueSearch path={path} reference={reference} />}
      <ul className="tree">
        <ValueNode
          path={path}
          pointer=""
          reference={reference}
          entry={{ key: "", ...first.data } as unknown as Entry}
          open={DEPTH}
        />
      </ul>
    </>
  );
}

/** The object that holds a match, with the match marked; the match alone if it is not among the members read first. */
export function FoundPart({
  path,
  parent,
  name,
  pointer,
  reference,
  above,
}: {
  path: string;
  parent: string;
  name: string;
  pointer: string;
  reference: string;
  above: string;
}): JSX.Element | null {
  const around = useFirst(path, parent);
  const holds = around.data?.type === "object" && around.data.entries?.some((each) => each.key === name);
  const alone = useFirst(path, around.data && !holds ? pointer : parent);
  if (around.isError || alone.isError) return <Failure error={around.error ?? alone.error} />;
  const part = holds ? around.data : alone.data;
  if (!around.data || !part) return <Skeleton rows={2} height={12} />;
  return (
    <Found value={pointer}>
      <ul className="tree">
        <ValueNode
          key={part.pointer}
          path={path}
          pointer={part.pointer}
          reference={holds ? above : reference}
          entry={{ key: "", ...part } as unknown as Entry}
          open={1}
        />
      </ul>
    </Found>
  );
}

function Name({ name, reference }: { name: string | number; reference: string }): JSX.Element | null {
  if (name === "") return null;
  if (!reference) return <span className="tree-key">{name}:</span>;
  return (
    <button
      type="button"
      className="tree-key tree-copy"
      title={`Copy ${reference}`}
      onClick={() => void navigator.clipboard?.writeText(reference).then(() => say("success", `Copied ${reference}`))}
    >
      {name}:
    </button>
  );
}

export function ValueNode({
  path,
  pointer,
  reference,
  entry,
  open,
}: {
  path: string;
  pointer: string;
  reference: string;
  entry: Entry;
  open: number;
}): JSX.Element {
  const isFound = useContext(Found) === pointer && entry.key !== "";
  // The server counts the members of a large one when it is opened.
  const many = entry.size ?? Infinity;
  const [expanded, setExpanded] = useState(
    open > 0 && (entry.key === "" || (entry.entries !== null && many <= MAX_OPEN)),
  );
  if (entry.type !== "object" && entry.type !== "array") {
    return (
      <li>
        <div className="tree-line" data-found={isFound || undefined}>
          <Name name={entry.key} reference={reference} />
          {entry.type === "string" ? (
            <Text path={path} pointer={pointer} entry={entry} />
          ) : (
            <span className={entry.type === "number" ? "tree-number" : "tree-word"}>{String(entry.value)}</span>
          )}
        </div>
      </li>
    );
  }
  const file =
    entry.type === "object" && entry.entries
      ? fileOf(Object.fromEntries(entry.entries.map((each) => [each.key, each.value])))
      : null;
  return (
    <li>
      <div className="tree-line" data-found={isFound || undefined}>
        {many > 0 && (
          <button
            type="button"
            className="tree-toggle"
            aria-expanded={expanded}
            aria-label={`${expanded ? "Collapse" : "Expand"} ${entry.key === "" ? "value" : entry.key}`}
            onClick={() => setExpanded(!expanded)}
          >
            {expanded ? <ChevronDown size={13} aria-hidden="true" /> : <ChevronRight size={13} aria-hidden="true" />}
          </button>
        )}
        <Name name={entry.key} reference={reference} />
        <span className="dim">
          {entry.type === "array"
            ? `[${entry.size === null ? "…" : plural(many, "item")}]`
            : `{${entry.size === null ? "…" : plural(many, "key")}}`}
          {entry.bytes > 10_000 && ` · ${bytes(entry.bytes)}`}
        </span>
        {file && <FileLink file={file} />}
      </div>
      {expanded && many > 0 && (
        <Members
          path={path}
          pointer={pointer}
          reference={reference}
          entry={entry}
          open={many <= MAX_OPEN ? open - 1 : 0}
        />
      )}
    </li>
  );
}

/** The members of an object or a list: those that came with it, and further ones on request. */
function Members({
  path,
  pointer,
  reference,
  entry,
  open,
}: {
  path: string;
  pointer: string;
  reference: string;
  entry: Entry;
  open: number;
}): JSX.Element {
  const given = entry.entries ?? [];
  const [more, setMore] = useState(entry.entries === null);
  const rest = useRest(path, pointer, given.length, more);
  const entries = [...given, ...((rest.data?.pages.flatMap((part) => part.entries ?? []) ?? []) as Entry[])];
  const left = (entry.size ?? rest.data?.pages[0]?.size ?? 0) - entries.length;
  return (
    <ul>
      {entries.map((each) => (
        <ValueNode
          key={each.key}
          path={path}
          pointer={pointerOf(pointer, each.key)}
          reference={reference && `${reference}${stepOf(each.key)}`}
          entry={each}
          open={open}
        />
      ))}
      {rest.isError && (
        <li>
          <Failure error={rest.error} retry={() => void rest.refetch()} />
        </li>
      )}
      {rest.isLoading && (
        <li>
          <Skeleton rows={2} height={12} />
        </li>
      )}
      {left > 0 && !rest.isLoading && !rest.isError && (
        <li>
          <button
            type="button"
            className="tag"
            disabled={rest.isFetching}
            onClick={() => (more ? void rest.fetchNextPage() : setMore(true))}
          >
            {count(Math.min(MEMBERS, left))} more of {count(left)}
          </button>
        </li>
      )}
    </ul>
  );
}

/** A text: its beginning, and further pieces on request. Offsets are those of the server, which counts characters. */
function Text({ path, pointer, entry }: { path: string; pointer: string; entry: Entry }): JSX.Element {
  const [more, setMore] = useState(false);
  const rest = useRest(path, pointer, entry.next ?? 0, more && entry.next !== null);
  const pages = rest.data?.pages ?? [];
  const text = String(entry.value ?? "") + pages.map((part) => String(part.value ?? "")).join("");
  const last = pages.at(-1);
  const next = last ? last.next : entry.next;
  return (
    <span className="tree-string">
      {toJson(text)}
      {next !== null && (
        <button
          type="button"
          className="tag"
          disabled={rest.isFetching}
          onClick={() => (more ? void rest.fetchNextPage() : setMore(true))}
        >
          … {count(Math.min(CHARS, (entry.size ?? 0) - next))} more of {plural((entry.size ?? 0) - next, "character")}
        </button>
      )}
    </span>
  );
}
