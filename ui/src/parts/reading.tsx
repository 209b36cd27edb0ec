/** What is shown while something is read from the server, when it fails, and when it is there. */
import type { ReactElement, ReactNode } from "react";
import { Failure, Skeleton } from "./controls";

type Reading = { isError: boolean; isPending: boolean; error: unknown; refetch: () => unknown };

type Manner = {
  /** What stands for the content while it is read. */
  skeleton: { rows: number; height?: number };
  /** Whether what was read stays when a later read fails. */
  keeps?: boolean;
  /** Whether a failure has a button that reads again. */
  retries?: boolean;
};

type AnswerProps<T> = Manner & {
  query: Reading & { data: T | undefined };
  children: (answer: T) => ReactNode;
};

/** A failure, placeholders, or the answer. */
export function Answered<T>({ query, skeleton, keeps = false, retries = true, children }: AnswerProps<T>): ReactNode {
  const { data } = query;
  if (query.isError && !(keeps && data !== undefined))
    return <Failure error={query.error} retry={retries ? () => void query.refetch() : undefined} />;
  return data === undefined ? <Skeleton {...skeleton} /> : children(data);
}

export type ListProps<T> = Manner & {
  query: Reading;
  rows: readonly T[] | undefined;
  /** What is shown if there are none. */
  blank: ReactElement;
};

/** A failure, placeholders, a word about nothing, or the rows. */
export function Listed<T>({
  query,
  rows = [],
  skeleton,
  blank,
  keeps = false,
  retries = true,
  children,
}: ListProps<T> & { children: (rows: readonly T[]) => ReactNode }): ReactNode {
  if (query.isError && !(keeps && rows.length > 0))
    return <Failure error={query.error} retry={retries ? () => void query.refetch() : undefined} />;
  if (query.isPending) return <Skeleton {...skeleton} />;
  return rows.length === 0 ? blank : children(rows);
}
