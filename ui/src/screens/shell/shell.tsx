/** The frame around all screens: navigation, command box, keys, connection and identity. */
import {
  Activity,
  BookOpen,
  FileKey2,
  Inbox,
  KeyRound,
  LayoutDashboard,
  LogOut,
  MailX,
  Menu as MenuIcon,
  Moon,
  ScrollText,
  Search,
  Server,
  Settings,
  Sun,
  Webhook,
  Workflow,
  X,
  type LucideIcon,
} from "lucide-react";
import { Suspense, lazy, useEffect, useRef, useState, type JSX, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { signOut } from "../../api/client";
import { useMe, useVersion } from "../../api/queries";
import { useRight } from "../../api/rights";
import { connection, useLink } from "../../live/connection";
import { Button, IconButton } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";
import { relative } from "../../parts/format";
import { useNow } from "../../parts/now";
import { say } from "../../parts/toasts";
import { setTheme, useTheme } from "../../parts/theme";
import { KEYS, useKeys, useSingleKeys } from "./keyboard";
import { Mark } from "./mark";

const loadCommandBox = () => import("./command_box");
const CommandBox = lazy(async () => ({ default: (await loadCommandBox()).CommandBox }));

type Place = { to: string; text: string; icon: LucideIcon };
export const PLACES: { title: string; places: Place[] }[] = [
  {
    title: "",
    places: [
      { to: "/", text: "Overview", icon: LayoutDashboard },
      { to: "/workflows", text: "Workflows", icon: Workflow },
      { to: "/executions", text: "Executions", icon: Activity },
      { to: "/waiting", text: "Inbox", icon: Inbox },
    ],
  },
  {
    title: "Operate",
    places: [
      { to: "/triggers", text: "Triggers", icon: Webhook },
      { to: "/dead-letters", text: "Dead letters", icon: MailX },
      { to: "/fleet", text: "Fleet", icon: Server },
    ],
  },
  {
    title: "Administer",
    places: [
      { to: "/credentials", text: "Credentials", icon: FileKey2 },
      { to: "/keys", text: "API keys", icon: KeyRound },
      { to: "/log", text: "Audit log", icon: ScrollText },
      { to: "/settings", text: "Settings", icon: Settings },
    ],
  },
];

/** What an approver sees: the decisions and nothing else. */
const ONLY_INBOX = [{ title: "", places: [{ to: "/waiting", text: "Inbox", icon: Inbox }] }];

/** Screens that are reached from another one, with the place in the navigation that they belong to. */
const INSIDE: Record<string, string> = { "/bulk": "/executions", "/editor": "/workflows" };

function isAt(location: string, to: string): boolean {
  const within = (place: string): boolean => location === place || location.startsWith(`${place}/`);
  return to === "/"
    ? location === "/"
    : within(to) || Object.entries(INSIDE).some(([place, owner]) => owner === to && within(place));
}

function LinkState(): JSX.Element {
  const link = useLink();
  const words = { live: "Live", connecting: "Connecting", lost: "Reconnecting", none: "Connected" };
  return (
    <span className="link-state" data-link={link} role="status">
      <i aria-hidden="true" />
      {words[link]}
    </span>
  );
}

function OfflineBanner(): JSX.Element | null {
  const link = useLink();
  const now = useNow();
  if (link !== "lost") return null;
  return (
    <div className="banner" data-state="waiting" role="alert">
      The connection to the server is lost. The data shown was current {relative(connection.lostAt, now)}. Reconnecting.
    </div>
  );
}

/** Asks to reload when the server was updated since this page was loaded. */
function UpdateBanner(): JSX.Element | null {
  const { data } = useVersion();
  const first = useRef<string | undefined>(undefined);
  if (data && first.current === undefined) first.current = data.build;
  if (!data || data.build === first.current) return null;
  return (
    <div className="banner" data-state="running" role="status">
      The server was updated.
      <Button size="small" onClick={() => window.location.reload()}>
        Reload the page
      </Button>
    </div>
  );
}

function Navigation(): JSX.Element {
  const [location] = useLocation();
  const views = useRight("view");
  return (
    <nav aria-label="Main" className="nav">
      {(views.allowed ? PLACES : ONLY_INBOX).map(({ title, places }) => (
        <div key={title || "main"} className="nav-group">
          {title && <span className="nav-title">{title}</span>}
          {places.map(({ to, text, icon: Icon }) => (
            <Link key={to} href={to} className="nav-link" aria-current={isAt(location, to) ? "page" : undefined}>
              <Icon size={16} aria-hidden="true" />
              {text}
            </Link>
          ))}
        </div>
      ))}
    </nav>
  );
}

function Identity(): JSX.Element {
  const { data: me } = useMe();
  const { data: version } = useVersion();
  const { dark } = useTheme();
  return (
    <div className="bar-foot">
      <div className="row">
        <LinkState />
        <span className="push row" style={{ gap: 2 }}>
          <a className="icon-button" data-size="small" href="/docs" title="API reference" aria-label="API reference">
            <BookOpen size={15} aria-hidden="true" />
          </a>
          <IconButton
            size="small"
            icon={dark ? Sun : Moon}
            label={dark ? "Use the light theme" : "Use the dark theme"}
            onClick={() => setTheme(dark ? "light" : "dark")}
          />
          {me?.authentication === "session" && (
            <IconButton
              size="small"
              icon={LogOut}
              label="Sign out"
              onClick={() => void signOut().catch((error: Error) => say("failed", error.message))}
            />
          )}
        </span>
      </div>
      <div className="row dim who">
        <span className="clip" title={me?.principal}>
          {me ? `${me.principal} · ${me.role}` : "…"}
        </span>
        <span className="push tabular">{version?.version ? `v${version.version}` : ""}</span>
      </div>
    </div>
  );
}

function KeyHelp({ onClose }: { onClose: () => void }): JSX.Element {
  const [single, setSingle] = useSingleKeys();
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className="facts keys">
        {KEYS.map(({ keys, text }) => (
          <div key={text} style={{ display: "contents" }}>
            <dt>
              {keys.split(" ").map((each) => (
                <kbd key={each}>{each}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <label className="row">
        <input type="checkbox" checked={single} onChange={(event) => setSingle(event.target.checked)} />
        Single-letter shortcuts
      </label>
    </Dialog>
  );
}

export function Shell({ children }: { children: ReactNode }): JSX.Element {
  const [drawer, setDrawer] = useState(false);
  const [command, setCommand] = useState(false);
  const [help, setHelp] = useState(false);
  const [location, navigate] = useLocation();
  const main = useRef<HTMLElement>(null);
  useKeys({
    "mod+k": () => setCommand(true),
    "?": () => setHelp(true),
    "g o": () => navigate("/"),
    "g w": () => navigate("/workflows"),
    "g e": () => navigate("/executions"),
    "g i": () => navigate("/waiting"),
    "g f": () => navigate("/fleet"),
    "g d": () => navigate("/dead-letters"),
    "g t": () => navigate("/triggers"),
  });
  useEffect(() => {
    // Loaded in advance: letters that are typed right after the key must reach the box.
    const timer = setTimeout(() => void loadCommandBox(), 500);
    return () => clearTimeout(timer);
  }, []);
  useEffect(() => {
    setDrawer(false);
    main.current?.scrollTo(0, 0);
  }, [location]);
  return (
    <div className="shell" data-drawer={drawer || undefined}>
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <header className="topbar">
        <IconButton
          icon={drawer ? X : MenuIcon}
          label={drawer ? "Close the menu" : "Open the menu"}
          aria-expanded={drawer}
          onClick={() => setDrawer(!drawer)}
        />
        <Link href="/" className="brand">
          <Mark size={22} /> Rune
        </Link>
        <span className="push">
          <IconButton icon={Search} label="Search" onClick={() => setCommand(true)} />
        </span>
      </header>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a pointer's shortcut; the button of the menu closes it too. */}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: as above. */}
      {drawer && <div className="drawer-veil" onClick={() => setDrawer(false)} />}
      <aside className="bar" aria-label="Navigation and status">
        <Link href="/" className="brand">
          <Mark /> Rune
        </Link>
        <button type="button" className="command-hint" onClick={() => setCommand(true)}>
          <Search size={14} aria-hidden="true" />
          Search
          <kbd>Ctrl K</kbd>
        </button>
        <Navigation />
        <Identity />
      </aside>
      <main className="main" id="main" ref={main} tabIndex={-1}>
        <OfflineBanner />
        <UpdateBanner />
        {children}
      </main>
      {command && (
        <Suspense fallback={null}>
          <CommandBox onClose={() => setCommand(false)} onHelp={() => setHelp(true)} />
        </Suspense>
      )}
      {help && <KeyHelp onClose={() => setHelp(false)} />}
    </div>
  );
}

/** The head of a screen: title, facts beside it, actions at the right. */
export function Head({
  title,
  lead,
  actions,
  children,
}: {
  title: ReactNode;
  lead?: ReactNode;
  actions?: ReactNode;
  children?: ReactNode;
}): JSX.Element {
  return (
    <header className="head">
      <div className="head-line">
        <div style={{ minInlineSize: 0 }}>
          <h1>{title}</h1>
          {lead && <p className="dim">{lead}</p>}
        </div>
        {actions && <div className="head-actions">{actions}</div>}
      </div>
      {children}
    </header>
  );
}
