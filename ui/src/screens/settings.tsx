/** The preferences of this browser, and what the server is. */
import type { JSX } from "react";
import { useMe, useNodeTypes, useVersion } from "../api/queries";
import { Failure, Skeleton } from "../parts/controls";
import { setTheme, useTheme, type Theme } from "../parts/theme";
import { Head } from "./shell";
import { useSingleKeys } from "./keyboard";

const THEMES: [Theme, string][] = [
  ["system", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

export function SettingsScreen(): JSX.Element {
  const { theme } = useTheme();
  const [single, setSingle] = useSingleKeys();
  const version = useVersion();
  const me = useMe();
  const types = useNodeTypes();
  return (
    <div className="screen narrow">
      <Head title="Settings" />
      <section className="card" aria-labelledby="appearance">
        <div className="card-head">
          <h2 id="appearance">This browser</h2>
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
            <span style={{ minInlineSize: 120 }}>Keys</span>
            <input type="checkbox" className="check" checked={single} onChange={(event) => setSingle(event.target.checked)} />
            Use keys of a single letter
          </label>
        </div>
      </section>
      <section className="card" aria-labelledby="server">
        <div className="card-head">
          <h2 id="server">Server</h2>
        </div>
        <div className="card-body">
          {version.isError ? (
            <Failure error={version.error} />
          ) : !version.data ? (
            <Skeleton rows={3} height={14} />
          ) : (
            <dl className="facts">
              <dt>Version</dt>
              <dd>{version.data.version}</dd>
              <dt>Build of this page</dt>
              <dd>
                <code>{version.data.build || "unknown"}</code>
              </dd>
              <dt>You are</dt>
              <dd>
                {me.data?.principal} ({me.data?.role})
              </dd>
              <dt>Your rights</dt>
              <dd>{me.data?.rights.join(", ")}</dd>
              <dt>Node types</dt>
              <dd>{types.data?.map((each) => each.type).join(", ")}</dd>
            </dl>
          )}
        </div>
      </section>
    </div>
  );
}
