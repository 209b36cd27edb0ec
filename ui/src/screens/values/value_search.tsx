/** Finds keys and texts in a stored value, also in parts that are not loaded: the server searches. */
import { useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronUp, Search } from "lucide-react";
import { useEffect, useState, type JSX } from "react";
import { readJson, type Schemas } from "../../api/client";
import { CopyButton, IconButton, Input } from "../../parts/controls";
import { count } from "../../parts/format";
import { findPath, pointerOf, stepOf, stepsOf } from "./pointers";
import { FoundPart } from "./stored_value";

type Matches = Schemas["ValueMatches"];
type Match = Schemas["ValueMatch"];

const PAGE = 100;
const DELAY_MS = 250;

export function ValueSearch({ path, reference }: { path: string; reference: string }): JSX.Element {
  const [text, setText] = useState("");
  const [find, setFind] = useState("");
  const [at, setAt] = useState(0);
  useEffect(() => {
    const timer = setTimeout(() => {
      setFind(text.trim());
      setAt(0);
    }, DELAY_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const offset = Math.floor(at / PAGE) * PAGE;
  const page = useQuery({
    queryKey: ["find", path, find, offset],
    queryFn: ({ signal }) => readJson<Matches>(findPath(path, find, offset, PAGE), signal),
    enabled: find !== "",
    staleTime: Infinity,
    retry: false,
    placeholderData: (before) => (before?.find === find ? before : undefined),
  });
  const found = find ? page.data : undefined;
  const total = found?.count ?? 0;
  const match = found && found.offset === offset ? found.matches[at - offset] : undefined;
  const move = (by: number): void => {
    if (total > 0) setAt((at + by + total) % total);
  };
  const figure =
    total === 0
      ? `No match${found?.complete === false ? " so far" : ""}`
      : `${count(at + 1)} of ${count(total)}${found?.complete ? "" : "+"}`;
  return (
    <div className="stack value-search">
      <div className="row" role="group" aria-label="Find in this value">
        <div className="search">
          <Search size={14} aria-hidden="true" />
          <Input
            type="search"
            placeholder="Find keys and texts"
            aria-label="Find keys and texts"
            value={text}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter") return;
              event.preventDefault();
              move(event.shiftKey ? -1 : 1);
            }}
          />
        </div>
        <span className="dim tabular" role="status">
          {page.isError ? page.error.message : found ? figure : page.isFetching ? "Searching…" : ""}
        </span>
        {total > 0 && (
          <>
            <IconButton size="small" icon={ChevronUp} label="Previous match" onClick={() => move(-1)} />
            <IconButton size="small" icon={ChevronDown} label="Next match" onClick={() => move(1)} />
          </>
        )}
      </div>
      {match && <Shown path={path} reference={reference} match={match} length={find.length} />}
    </div>
  );
}

function Shown({
  path,
  reference,
  match,
  length,
}: {
  path: string;
  reference: string;
  match: Match;
  length: number;
}): JSX.Element {
  const steps = stepsOf(match.pointer);
  const name = steps.at(-1) ?? "";
  const parent = steps.slice(0, -1).reduce(pointerOf, "");
  // Only a list has members by number that an expression writes in brackets; a pointer does not say which it is.
  const written = (parts: readonly string[]): string =>
    parts.reduce(
      (before, each) => before + stepOf(/^(0|[1-9]\d{0,14})$/.test(each) ? Number(each) : each),
      reference || "value",
    );
  const whole = written(steps);
  return (
    <div className="value-match">
      <div className="row">
        <code className="clip">{whole}</code>
        <span className="tag">{match.where === "key" ? "key" : "text"}</span>
        {reference && <CopyButton text={whole} label={`Copy ${whole}`} />}
      </div>
      <p className="value-excerpt">
        {match.text.slice(0, match.start)}
        <mark>{match.text.slice(match.start, match.start + length)}</mark>
        {match.text.slice(match.start + length)}
      </p>
      {steps.length > 0 && (
        <FoundPart
          key={match.pointer}
          path={path}
          parent={parent}
          name={name}
          pointer={match.pointer}
          reference={reference && whole}
          above={reference && written(steps.slice(0, -1))}
        />
      )}
    </div>
  );
}
