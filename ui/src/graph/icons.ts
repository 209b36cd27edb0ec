/** The icon of a node type. */
import {
  ArrowDownToLine,
  ArrowUpFromLine,
  Bot,
  Box,
  Clock,
  Code,
  Combine,
  Filter,
  GitBranch,
  GitMerge,
  Globe,
  Mail,
  Pencil,
  Repeat,
  Sigma,
  Split,
  Timer,
  Webhook,
  Workflow,
  CircleSlash,
  type LucideIcon,
} from "lucide-react";

const BY_TYPE: Record<string, LucideIcon> = {
  input: ArrowDownToLine,
  output: ArrowUpFromLine,
  split: Split,
  aggregator: Combine,
  conditional: GitBranch,
  switch: GitBranch,
  merge: GitMerge,
  join: GitMerge,
  wait: Clock,
  delay: Timer,
  schedule: Timer,
  cron: Timer,
  webhook: Webhook,
  http: Globe,
  http_request: Globe,
  edit: Pencil,
  set: Pencil,
  filter: Filter,
  code: Code,
  transform: Sigma,
  loop: Repeat,
  email: Mail,
  smtp: Mail,
  llm: Bot,
  workflow: Workflow,
  stop: CircleSlash,
  fail: CircleSlash,
};

export function iconOf(type: string): LucideIcon {
  const exact = BY_TYPE[type];
  if (exact) return exact;
  const part = Object.keys(BY_TYPE).find((each) => type.includes(each));
  return (part && BY_TYPE[part]) || Box;
}
