/** The preferences of this browser, what the server is, and its settings. */
import { useQuery } from "@tanstack/react-query";
import { Search, Stethoscope } from "lucide-react";
import { useState, type JSX } from "react";
import { api, read, type Schemas } from "../../api/client";
import { useMe, useNodeTypes, useVersion } from "../../api/queries";
import { useRight } from "../../api/rights";
import { Button, Failure, Input, Notice, Skeleton } from "../../parts/controls";
import { Answered } from "../../parts/reading";
import { Table, type Column } from "../../parts/table";
import { setTheme, useTheme, type Theme } from "../../parts/theme";
import { toJson } from "../../text/json";
import { Head } from "./shell";
import { useSingleKeys } from "./keyboard";

const THEMES: [Theme, string][] = [
  ["system", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
];

export function SettingsScreen(): JSX.Element {
  const { theme } = useTheme();
  const [single, setSingle] = useSingleKeys();
  const version = useVersion();
  const me = useMe();
  const types = useNodeTypes();
  const admin = useRight("admin");
  return (
    <div className="screen narrow">
      <Head title="Settings" />
      <section className="card" aria-labelledby="appearance">
        <div className="card-head">
          <h2 id="appearance">Preferences</h2>
        </div>
        <div className="card-body stack">
          <div className="row wrap">
            <span style={{ minInlineSize: 120 }}>Theme</span>
            <div className="segments" role="group" aria-label="Theme">
              {THEMES.map(([each, text]) => (
                <button key={each} type="button" aria-pressed={theme === each} onClick={() => setTheme(each)}>
                  {text}
                </button>
              ))}
            </div>
          </div>
          <label className="row">
            <span style={{ minInlineSize: 120 }}>Keyboard</span>
            <input
              type="checkbox"
              className="check"
              checked={single}
              onChange={(event) => setSingle(event.target.checked)}
            />
            Single-letter shortcuts
          </label>
        </div>
      </section>
      <section className="card" aria-labelledby="server">
        <div className="card-head">
          <h2 id="server">Server</h2>
        </div>
        <div className="card-body">
          <Answered query={version} skeleton={{ rows: 3, height: 14 }} retries={false}>
            {(found) => (
              <dl className="facts">
                <dt>Version</dt>
                <dd>{found.version}</dd>
                <dt>Build</dt>
                <dd>
                  <code>{found.build || "unknown"}</code>
                </dd>
                <dt>Signed in as</dt>
                <dd>
                  {me.data?.principal} ({me.data?.role})
                </dd>
                <dt>Rights</dt>
                <dd>{me.data?.rights.join(", ")}</dd>
                <dt>Node types</dt>
                <dd>{types.data?.map((each) => each.type).join(", ")}</dd>
              </dl>
            )}
          </Answered>
        </div>
      </section>
      {admin.allowed && <Doctor />}
      {admin.allowed && <Effective />}
    </div>
  );
}

const VERDICTS: Record<Schemas["FindingView"]["verdict"], string> = { ok: "success", warn: "waiting", bad: "failed" };

/** The checks of `rune doctor`, made by the server when they are asked for. What needs attention comes first. */
function Doctor(): JSX.Element {
  const report = useQuery({
    queryKey: ["doctor"],
    queryFn: () => read(api.GET("/api/v1/doctor")),
    enabled: false,
    retry: false,
  });
  const order = ["bad", "warn", "ok"];
  const checks = [...(report.data?.checks ?? [])].sort((a, b) => order.indexOf(a.verdict) - order.indexOf(b.verdict));
  const result = (): JSX.Element => {
    if (report.isError) return <Failure error={report.error} retry={() => void report.refetch()} />;
    if (report.isFetching) return <Skeleton rows={4} height={18} />;
    if (report.data)
      return (
        <ul className="stack" aria-label="Results of the checks">
          {checks.map((each) => (
            <li key={each.check}>
              <Notice state={VERDICTS[each.verdict]}>
                <p>
                  <b>{each.check}</b>: {each.found}
                </p>
                {each.advice && <p className="dim">{each.advice}</p>}
              </Notice>
            </li>
          ))}
        </ul>
      );
    return <p className="dim">Settings, stores, clocks and limits, as rune doctor checks them. Nothing is changed.</p>;
  };
  return (
    <section className="card" aria-labelledby="checks">
      <div className="card-head">
        <h2 id="checks">Checks</h2>
        <span className="push">
          <Button size="small" icon={Stethoscope} disabled={report.isFetching} onClick={() => void report.refetch()}>
            {report.data ? "Check again" : "Check the server and its stores"}
          </Button>
        </span>
      </div>
      <div className="card-body stack" aria-live="polite">
        {result()}
      </div>
    </section>
  );
}

function shown({ value, secret }: Schemas["SettingView"]): string {
  if (secret) return value === true ? "••• (set)" : "not set";
  if (value === null || value === "") return "not set";
  return typeof value === "string" ? value : toJson(value);
}

const COLUMNS: Column<Schemas["SettingView"]>[] = [
  { title: "Name", cell: (each) => <code>{each.name}</code> },
  { title: "Value", style: { overflowWrap: "anywhere" }, cell: (each) => shown(each) },
  {
    title: "From",
    cell: (each) =>
      each.source === "default" ? <span className="dim">default</span> : <span className="tag">{each.source}</span>,
  },
];

/** The settings in effect on the server that responds, and where each comes from. */
function Effective(): JSX.Element {
  const [text, setText] = useState("");
  const settings = useQuery({
    queryKey: ["settings"],
    queryFn: async () => (await read(api.GET("/api/v1/settings"))).settings,
  });
  const low = text.toLowerCase();
  const rows = (settings.data ?? []).filter((each) => each.name.toLowerCase().includes(low));
  // Settings that differ from their defaults come first.
  const sorted = [
    ...rows.filter((each) => each.source !== "default"),
    ...rows.filter((each) => each.source === "default"),
  ];
  return (
    <section className="card" aria-labelledby="effective">
      <div className="card-head">
        <h2 id="effective">Settings in effect</h2>
        <span className="push search" style={{ flex: "none" }}>
          <Search size={14} aria-hidden="true" />
          <Input
            type="search"
            aria-label="Find a setting"
            placeholder="Find a setting"
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </span>
      </div>
      <Answered query={settings} skeleton={{ rows: 6, height: 18 }}>
        {() => (
          <div className="table-scroll" role="group" aria-label="Table of settings" tabIndex={0}>
            <Table columns={COLUMNS} keyOf={(each) => each.name} rows={sorted} />
          </div>
        )}
      </Answered>
    </section>
  );
}
