/** What the dialogs of actions share: one request under one key, its error, and where to go afterwards. */
import { useQueryClient } from "@tanstack/react-query";
import { useState, type JSX, type ReactNode } from "react";
import { useLocation } from "wouter";
import { newKey, type ExecutionDetail } from "../api/client";
import { Button } from "../parts/controls";
import { say } from "../parts/toasts";

export function useAct(execution: ExecutionDetail, onClose: () => void) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const [key] = useState(newKey);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const run = (work: () => Promise<{ text: string; to?: string }>): void => {
    setBusy(true);
    setError(null);
    work().then(
      ({ text, to }) => {
        void client.invalidateQueries({ queryKey: ["execution", execution.execution_id] });
        say("success", text, to ? { to: `/executions/${execution.execution_id}`, text: "Open the original execution" } : undefined);
        onClose();
        if (to) navigate(`/executions/${to}`);
      },
      (problem: Error) => {
        setError(problem);
        setBusy(false);
      },
    );
  };
  return { key, busy, error, run };
}

export function Foot({ onClose, busy, children }: { onClose: () => void; busy: boolean; children: ReactNode }): JSX.Element {
  return (
    <>
      <Button onClick={onClose} disabled={busy}>
        Close
      </Button>
      {children}
    </>
  );
}
