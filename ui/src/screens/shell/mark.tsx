/** The mark of the product. */
import type { JSX } from "react";

export function Mark({ size = 24 }: { size?: number }): JSX.Element {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" className="mark">
      <rect width="32" height="32" rx="9" fill="var(--accent)" />
      <path
        d="M11 25V7l10 6.2L11 18.4M14.6 16.6 21 25"
        fill="none"
        stroke="var(--accent-ink)"
        strokeWidth="2.6"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </svg>
  );
}
