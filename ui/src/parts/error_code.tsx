/** An error code as a link to its section of the page that tells what to do about it. */
import type { JSX } from "react";

/** The section about an error code, on a page of this server. */
export function remedyOf(code: string): string {
  return `/docs/what-to-do-when#${encodeURIComponent(code.toLowerCase())}`;
}

export function ErrorCode({ code, className }: { code: string; className?: string }): JSX.Element {
  return (
    <a
      className={["code-link", className].filter(Boolean).join(" ")}
      href={remedyOf(code)}
      target="_blank"
      rel="noreferrer"
      title={`What to do about ${code}`}
    >
      {code}
    </a>
  );
}
