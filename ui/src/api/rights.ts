/** What the caller may do. Controls that need a missing right stay visible, disabled, and name the role they take. */
import { useMe } from "./queries";

export type Right = "inbox" | "view" | "run" | "edit" | "admin" | "signal";

const ROLE_OF: Record<Right, string> = {
  view: "viewer",
  inbox: "approver",
  signal: "approver",
  run: "runner",
  edit: "editor",
  admin: "admin",
};

export type Permission = { allowed: boolean; reason: string | undefined };

export function useRight(right: Right): Permission {
  const { data } = useMe();
  const allowed = data === undefined || data.rights.includes(right);
  return {
    allowed,
    reason: allowed ? undefined : `Requires the role ${ROLE_OF[right]}; your role is ${data?.role ?? "unknown"}.`,
  };
}
