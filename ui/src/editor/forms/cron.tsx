/** A cron expression with the next times at which it starts the workflow, as the server computes them. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState, type JSX, type ReactNode } from "react";
import { api, read } from "../../api/client";
import { Input, Sentence } from "../../parts/controls";

const DELAY_MS = 300;
const TICKS = 5;

type Ids = { id: string; "aria-describedby": string | undefined; "aria-invalid": boolean | undefined };

function useSettled(value: string): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), DELAY_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** A moment in a time zone; in the one of the server's answer if the browser does not know it. */
function shown(tick: string, timezone: string): string {
  const format = (zone: string): string =>
    new Intl.DateTimeFormat(undefined, {
      weekday: "short",
      day: "numeric",
      month: "short",
      hour: "2-digit",
      minute: "2-digit",
      timeZone: zone,
    }).format(new Date(tick));
  try {
    return format(timezone);
  } catch {
    return format("UTC");
  }
}

export function CronInput({
  ids,
  value,
  timezone,
  onChange,
}: {
  ids: Ids;
  value: string;
  timezone: string;
  onChange: (text: string) => void;
}): JSX.Element {
  const settled = useSettled(value);
  const { data } = useQuery({
    queryKey: ["schedule-preview", settled, timezone],
    enabled: settled !== "",
    retry: false,
    queryFn: () =>
      read(api.POST("/api/v1/schedules/preview", { body: { cron: settled, timezone, count: TICKS } as never })),
  });
  const preview = data as { ticks: string[]; problems: { message: string; hint: string }[] } | undefined;
  const problem = preview?.problems[0];
  let below: ReactNode = null;
  if (settled !== "" && problem) {
    below = (
      <p className="field-error">
        <Sentence text={problem.message} /> <Sentence text={problem.hint} />
      </p>
    );
  } else if (settled !== "" && preview) {
    below = (
      <ol className="edit-ticks" aria-label={`Next times, ${timezone}`}>
        {preview.ticks.map((each) => (
          <li key={each}>
            <time dateTime={each}>{shown(each, timezone)}</time>
          </li>
        ))}
      </ol>
    );
  }
  return (
    <>
      <Input
        {...ids}
        value={value}
        placeholder="minute hour day month weekday"
        spellCheck={false}
        onChange={(event) => onChange(event.target.value)}
      />
      {below}
    </>
  );
}
