/** Changes of the query of an address. */

export type Change = Record<string, string | string[] | null | undefined>;

export function changed(search: string, change: Change): string {
  const next = new URLSearchParams(search);
  for (const [name, value] of Object.entries(change)) {
    next.delete(name);
    if (Array.isArray(value)) for (const each of value) next.append(name, each);
    else if (value) next.set(name, value);
  }
  const text = next.toString().replaceAll("%3A", ":").replaceAll("%2F", "/").replaceAll("%2C", ",");
  return text ? `?${text}` : "";
}
