/** The command box: workflows, executions, places and actions by typing. */
import {
  Activity,
  ArrowRight,
  CircleHelp,
  CornerDownLeft,
  ListChecks,
  Moon,
  Play,
  Search,
  Sun,
  Workflow,
  type LucideIcon,
} from "lucide-react";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useId, useMemo, useRef, useState, type JSX } from "react";
import { useLocation } from "wouter";
import { api, read } from "../../api/client";
import { useWorkflows } from "../../api/queries";
import { shortId } from "../../parts/format";
import { setTheme, useTheme } from "../../parts/theme";
import { StateGlyph } from "../../parts/state";
import { score } from "./score";
import { PLACES } from "./shell";

type Entry = {
  key: string;
  group: string;
  text: string;
  note?: string;
  icon: LucideIcon;
  state?: string;
  run: () => void;
};

export function CommandBox({ onClose, onHelp }: { onClose: () => void; onHelp: () => void }): JSX.Element {
  const [text, setText] = useState("");
  const [cursor, setCursor] = useState(0);
  const [, navigate] = useLocation();
  const { dark } = useTheme();
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const id = useId();
  const workflows = useWorkflows();
  const [settled, setSettled] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text.trim()), 150);
    return () => clearTimeout(timer);
  }, [text]);
  const executions = useQuery({
    queryKey: ["command", settled],
    queryFn: () =>
      read(api.GET("/api/v1/executions", { params: { query: { limit: 6, ...(settled ? { q: settled } : {}) } } })),
    placeholderData: (before) => before,
  });
  const isFound = settled === text.trim() && !executions.isPlaceholderData;
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  const entries = useMemo<Entry[]>(() => {
    const go = (to: string) => () => {
      onClose();
      navigate(to);
    };
    const places: Entry[] = PLACES.flatMap(({ places: each }) => each).map((each) => ({
      key: `go:${each.to}`,
      group: "Go to",
      text: each.text,
      icon: each.icon,
      run: go(each.to),
    }));
    const acts: Entry[] = [
      {
        key: "theme",
        group: "Actions",
        text: dark ? "Use the light theme" : "Use the dark theme",
        icon: dark ? Sun : Moon,
        run: () => {
          setTheme(dark ? "light" : "dark");
          onClose();
        },
      },
      {
        key: "keys",
        group: "Actions",
        text: "Keyboard shortcuts",
        icon: CircleHelp,
        run: () => {
          onClose();
          onHelp();
        },
      },
      { key: "bulk", group: "Go to", text: "Bulk jobs", icon: ListChecks, run: go("/bulk") },
      {
        key: "failed",
        group: "Go to",
        text: "Failed executions",
        icon: Activity,
        run: go("/executions?status=failed"),
      },
    ];
    const stored = (workflows.data ?? []).flatMap<Entry>((each) => [
      {
        key: `workflow:${each.workflow_id}`,
        group: "Workflows",
        text: each.name || each.workflow_id,
        note: each.workflow_id,
        icon: Workflow,
        run: go(`/workflows/${each.workflow_id}`),
      },
      {
        key: `run:${each.workflow_id}`,
        group: "Run",
        text: `Run ${each.name || each.workflow_id}`,
        note: each.workflow_id,
        icon: Play,
        run: go(`/workflows/${each.workflow_id}/run`),
      },
    ]);
    const ranked = [...places, ...acts, ...stored]
      .map((each) => ({ each, rank: Math.max(score(each.text, text), each.note ? score(each.note, text) : 0) }))
      .filter(({ rank, each }) => rank > 0 && (text.trim() !== "" || each.group !== "Run"))
      .sort((a, b) => b.rank - a.rank)
      .slice(0, 14)
      .map(({ each }) => each);
    // Until the server has searched for the text, of what was found for another one only that is shown which has it.
    const low = text.trim().toLowerCase();
    const known = (executions.data?.executions ?? []).filter(
      (each) => isFound || `${each.execution_id} ${each.workflow_id}`.toLowerCase().includes(low),
    );
    const found = known.map<Entry>((each) => ({
      key: `execution:${each.execution_id}`,
      group: "Executions",
      text: each.workflow_id,
      note: shortId(each.execution_id),
      icon: Activity,
      state: each.status,
      run: go(`/executions/${each.execution_id}`),
    }));
    const order = ["Run", "Workflows", "Executions", "Go to", "Actions"];
    const exact = text.trim().length > 2 && ranked.length > 0;
    return [...ranked, ...found].sort((a, b) => (exact ? 0 : order.indexOf(a.group) - order.indexOf(b.group)));
  }, [text, workflows.data, executions.data, isFound, dark, navigate, onClose, onHelp]);
  const at = Math.min(cursor, entries.length - 1);
  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [at]);
  return (
    <dialog
      ref={dialog}
      className="dialog command"
      aria-label="Search"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => event.target === dialog.current && onClose()}
    >
      <div className="command-field">
        <Search size={17} aria-hidden="true" />
        <input
          autoFocus
          role="combobox"
          aria-expanded="true"
          aria-controls={`${id}-list`}
          aria-activedescendant={entries[at] ? `${id}-${at}` : undefined}
          aria-label="Search"
          placeholder="Workflows, executions, pages, actions"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setCursor(0);
          }}
          onKeyDown={(event) => {
            if (event.key === "ArrowDown" || event.key === "ArrowUp") {
              event.preventDefault();
              const step = event.key === "ArrowDown" ? 1 : -1;
              setCursor((at + step + entries.length) % Math.max(1, entries.length));
            } else if (event.key === "Enter") {
              event.preventDefault();
              entries[at]?.run();
            }
          }}
        />
        <kbd>Esc</kbd>
      </div>
      <ul className="command-list" role="listbox" id={`${id}-list`} aria-label="Results" ref={list}>
        {entries.map((each, index) => (
          <li
            key={each.key}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === at}
            className="command-item"
            onMouseMove={() => setCursor(index)}
            onClick={each.run}
          >
            {each.state ? <StateGlyph state={each.state} /> : <each.icon size={16} aria-hidden="true" />}
            <span className="clip">{each.text}</span>
            {each.note && each.note !== each.text && <code className="dim clip">{each.note}</code>}
            <span className="push dim command-group">{each.group}</span>
            {index === at ? (
              <CornerDownLeft size={14} aria-hidden="true" />
            ) : (
              <ArrowRight size={14} aria-hidden="true" className="ghost" />
            )}
          </li>
        ))}
        {entries.length === 0 && (
          <li className="command-none dim">{isFound && !executions.isFetching ? "Nothing matches." : "Searching…"}</li>
        )}
      </ul>
    </dialog>
  );
}
