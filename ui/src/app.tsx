/** Routes and the frame around all screens. */
import { Suspense, lazy, useSyncExternalStore, type ComponentType, type JSX } from "react";
import { Route, Switch } from "wouter";
import { session } from "./api/client";
import { useRight } from "./api/rights";
import { Blank, Skeleton } from "./parts/controls";
import { Toasts } from "./parts/toasts";
import { ExecutionsScreen } from "./screens/executions/executions";
import { Login } from "./screens/access/login";
import { Shell } from "./screens/shell/shell";
import { Boundary } from "./screens/shell/boundary";
import { Compass } from "lucide-react";

function later<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  return lazy(async () => ({ default: await load() })) as unknown as ComponentType<P>;
}

const Overview = later(() => import("./screens/overview/overview").then((m) => m.OverviewScreen));
const Workflows = later(() => import("./screens/workflows/workflows").then((m) => m.WorkflowsScreen));
const Workflow = later(() => import("./screens/workflows/workflow").then((m) => m.WorkflowScreen));
const RunScreen = later(() => import("./screens/workflows/run").then((m) => m.RunScreen));
const Editor = later(() => import("./editor/screen").then((m) => m.EditorScreen));
const Versions = later(() => import("./screens/workflows/versions").then((m) => m.VersionsScreen));
const Execution = later(() => import("./screens/executions/execution").then((m) => m.ExecutionScreen));
const Compare = later(() => import("./screens/executions/compare").then((m) => m.CompareScreen));
const Waiting = later(() => import("./screens/inbox/waiting").then((m) => m.WaitingScreen));
const Decision = later(() => import("./screens/inbox/waiting").then((m) => m.DecisionScreen));
const Triggers = later(() => import("./screens/workflows/triggers").then((m) => m.TriggersScreen));
const DeadLetters = later(() => import("./screens/fleet/dead_letters").then((m) => m.DeadLettersScreen));
const Fleet = later(() => import("./screens/fleet/fleet").then((m) => m.FleetScreen));
const Credentials = later(() => import("./screens/access/credentials").then((m) => m.CredentialsScreen));
const Keys = later(() => import("./screens/access/keys").then((m) => m.KeysScreen));
const Log = later(() => import("./screens/access/log").then((m) => m.LogScreen));
const BulkJobs = later(() => import("./screens/executions/bulk_jobs").then((m) => m.BulkJobsScreen));
const BulkJob = later(() => import("./screens/executions/bulk_jobs").then((m) => m.BulkJobScreen));
const Settings = later(() => import("./screens/shell/settings").then((m) => m.SettingsScreen));

/** The overview; for an approver the inbox, which is all that the key permits. */
function Home(): JSX.Element {
  const views = useRight("view");
  return views.allowed ? <Overview /> : <Waiting />;
}

export function App(): JSX.Element {
  const locked = useSyncExternalStore(session.subscribe, session.read);
  const visit = useSyncExternalStore(session.subscribe, session.readVisit);
  // What was typed is kept behind the login while a session has expired, for the person who typed it.
  const kept = locked && session.person !== null && !session.hasLeft;
  return (
    <>
      {locked && <Login over={kept} />}
      {(!locked || kept) && (
        <div key={visit} className="app" hidden={locked}>
          <Pages />
        </div>
      )}
      <Toasts />
    </>
  );
}

function Pages(): JSX.Element {
  return (
    <Shell>
      <Boundary>
        <Suspense fallback={<Skeleton rows={6} />}>
          <Switch>
            <Route path="/" component={Home} />
            <Route path="/executions" component={ExecutionsScreen} />
            <Route path="/executions/:id/diff/:other">
              {(path) => <Compare before={path.id} after={path.other} />}
            </Route>
            <Route path="/executions/:id">{(path) => <Execution key={path.id} id={path.id} />}</Route>
            <Route path="/workflows" component={Workflows} />
            <Route path="/editor">{() => <Editor id={null} />}</Route>
            <Route path="/workflows/:id/edit">{(path) => <Editor key={path.id} id={path.id} />}</Route>
            <Route path="/workflows/:id/run">{(path) => <RunScreen key={path.id} id={path.id} />}</Route>
            <Route path="/workflows/:id/versions/:range">
              {(path) => <Versions id={path.id} range={path.range} />}
            </Route>
            <Route path="/workflows/:id">{(path) => <Workflow key={path.id} id={path.id} />}</Route>
            <Route path="/waiting" component={Waiting} />
            <Route path="/waiting/:execution/:node">
              {(path) => <Decision execution={path.execution} node={path.node} />}
            </Route>
            <Route path="/triggers" component={Triggers} />
            <Route path="/dead-letters" component={DeadLetters} />
            <Route path="/fleet" component={Fleet} />
            <Route path="/credentials" component={Credentials} />
            <Route path="/keys" component={Keys} />
            <Route path="/log" component={Log} />
            <Route path="/settings" component={Settings} />
            <Route path="/bulk" component={BulkJobs} />
            <Route path="/bulk/:id">{(path) => <BulkJob key={path.id} id={path.id} />}</Route>
            <Route>
              <Blank icon={Compass} title="Page not found" page>
                There is no page at this address.
              </Blank>
            </Route>
          </Switch>
        </Suspense>
      </Boundary>
    </Shell>
  );
}
