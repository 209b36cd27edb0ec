/** The audit log: every requested change, newest first. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { ScrollText } from "lucide-react";
import type { JSX } from "react";
import { api, read, type Schemas } from "../../api/client";
import { Ago, Blank, Button, Failure, Input, Skeleton } from "../../parts/controls";
import { Head } from "../shell/shell";
import { useQueryState } from "../shell/url";

const FILTERS = ["actor", "action", "target"] as const;

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
      <div className="card table-scroll" role="group" aria-label="Table of entries" tabIndex={0}>
        {log.isError ? (
          <Failure error={log.error} retry={() => void log.refetch()} />
        ) : log.isPending ? (
          <Skeleton rows={6} height={22} />
        ) : rows.length === 0 ? (
          <Blank icon={ScrollText} title="No entries">
            Changes of workflows, keys, credentials and executions appear here.
          </Blank>
        ) : (
          <table className="table">
            <thead>
              <tr>
                <th>When</th>
                <th>Actor</th>
                <th>Action</th>
                <th>Target</th>
                <th>Details</th>
                <th>Outcome</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((each) => (
                <tr key={each.number}>
                  <td>
                    <Ago at={each.at} />
                  </td>
                  <td>{each.actor}</td>
                  <td>
                    <code>{each.action}</code>
                  </td>
                  <td>
                    <code>{each.target}</code>
                  </td>
                  <td className="dim">
                    {Object.entries(each.details)
                      .map(([name, value]) => `${name}: ${value}`)
                      .join(", ")}
                  </td>
                  <td>
                    {each.outcome === "asked" ? (
                      <span className="dim">accepted</span>
                    ) : (
                      <code className="error-line">{each.outcome}</code>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
      {log.hasNextPage && (
        <Button onClick={() => void log.fetchNextPage()} disabled={log.isFetchingNextPage}>
          Show older entries
        </Button>
      )}
    </div>
  );
}
