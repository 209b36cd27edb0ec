/** Formatters of times, durations, sizes and counts. All take the locale of the browser. */

const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "narrow" });
const ABSOLUTE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const COUNT = new Intl.NumberFormat();
const COMPACT = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_557_600_000],
  ["month", 2_629_800_000],
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
];

export function relative(at: number, now: number): string {
  const distance = at - now;
  for (const [unit, ms] of UNITS) {
    if (Math.abs(distance) >= ms) return RELATIVE.format(Math.trunc(distance / ms), unit);
  }
  if (Math.abs(distance) < 5_000) return "just now";
  return RELATIVE.format(Math.trunc(distance / 1000), "second");
}

export function absolute(at: number): string {
  return ABSOLUTE.format(at);
}

export function clock(at: number): string {
  return CLOCK.format(at);
}

/** A duration with two units at most: `850 ms`, `12.4 s`, `3 m 05 s`, `2 h 10 m`, `4 d 3 h`. */
export function duration(ms: number): string {
  if (ms < 0) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${String(seconds % 60).padStart(2, "0")} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} m`;
  const hours = Math.floor(minutes / 60);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let value = size;
  let unit = -1;
  do {
    value /= 1024;
    unit += 1;
  } while (value >= 1024 && unit < units.length - 1);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function count(value: number): string {
  return COUNT.format(value);
}

export function compact(value: number): string {
  return value < 10_000 ? COUNT.format(value) : COMPACT.format(value);
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Epoch milliseconds of an ISO time, or null. */
export function epoch(iso: string | null | undefined): number | null {
  if (!iso) return null;
  const at = Date.parse(iso);
  return Number.isNaN(at) ? null : at;
}

/** The end of a long id, which is the part in which ids differ. */
export function shortId(id: string): string {
  return id.length <= 14 ? id : `…${id.slice(-10)}`;
}

/** The part of the work that a report of progress names: `40%`, `3 of 12` or `3/12`; null if it names none. */
export function share(progress: string): number | null {
  const percent = /(\d+(?:\.\d+)?) ?%/.exec(progress);
  if (percent) return Math.min(1, Number(percent[1]) / 100);
  const counted = /(\d+) ?(?:of|\/) ?(\d+)/.exec(progress);
  return counted && Number(counted[2]) > 0 ? Math.min(1, Number(counted[1]) / Number(counted[2])) : null;
}
