/** The audit log: every requested change, newest first. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { ScrollText } from "lucide-react";
import type { JSX } from "react";
import { api, read, type Schemas } from "../../api/client";
import { Ago, Blank, Button, Input } from "../../parts/controls";
import { TableCard, type Column } from "../../parts/table";
import { Head } from "../shell/shell";
import { useQueryState } from "../shell/url";

const FILTERS = ["actor", "action", "target"] as const;

const COLUMNS: Column<Schemas["EntryView"]>[] = [
  { title: "When", cell: (each) => <Ago at={each.at} /> },
  { title: "Actor", cell: (each) => each.actor },
  { title: "Action", cell: (each) => <code>{each.action}</code> },
  { title: "Target", cell: (each) => <code>{each.target}</code> },
  {
    title: "Details",
    className: "dim",
    cell: (each) =>
      Object.entries(each.details)
        .map(([name, value]) => `${name}: ${value}`)
        .join(", "),
  },
  {
    title: "Outcome",
    cell: (each) =>
      each.outcome === "asked" ? (
        <span className="dim">accepted</span>
      ) : (
        <code className="error-line">{each.outcome}</code>
      ),
  },
];

export function LogScreen(): JSX.Element {
  const [parameters, set] = useQueryState();
  const filter = Object.fromEntries(
    FILTERS.flatMap((each) => (parameters.get(each) ? [[each, parameters.get(each) as string]] : [])),
  );
  const log = useInfiniteQuery({
    queryKey: ["log", filter],
    initialPageParam: "",
    queryFn: ({ pageParam }) =>
      read(
        api.GET("/api/v1/audit-log", {
          params: { query: { limit: 100, ...filter, ...(pageParam ? { cursor: pageParam } : {}) } },
        }),
      ),
    getNextPageParam: (page: Schemas["EntryPage"]) => page.next ?? undefined,
    placeholderData: (before) => before,
  });
  const rows = log.data?.pages.flatMap((page) => page.entries) ?? [];
  return (
    <div className="screen">
      <Head
        title="Audit log"
        lead="Every requested change. Entries cannot be edited or removed and contain no secrets."
      >
        <div className="filters" role="search">
          {FILTERS.map((each) => (
            <div key={each} className="filter-field">
              <Input
                type="search"
                aria-label={`Filter by ${each}`}
                placeholder={{ actor: "Actor", action: "Action, such as workflow", target: "Target" }[each]}
                value={filter[each] ?? ""}
                onChange={(event) => set({ [each]: event.target.value || null }, { replace: true })}
              />
            </div>
          ))}
        </div>
      </Head>
      <TableCard
        label="Table of entries"
        query={log}
        rows={rows}
        skeleton={{ rows: 6, height: 22 }}
        blank={
          <Blank icon={ScrollText} title="No entries">
            Changes of workflows, keys, credentials and executions appear here.
          </Blank>
        }
        columns={COLUMNS}
        keyOf={(each) => each.number}
      />
      {log.hasNextPage && (
        <Button onClick={() => void log.fetchNextPage()} disabled={log.isFetchingNextPage}>
          Show older entries
        </Button>
      )}
    </div>
  );
}
