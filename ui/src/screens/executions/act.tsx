/** What the dialogs of actions share: one request under one key, its error, and where to go afterwards. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, type JSX, type ReactNode, type RefObject } from "react";
import { useLocation } from "wouter";
import { newKey, type ExecutionDetail } from "../../api/client";
import { Button } from "../../parts/controls";
import { say } from "../../parts/toasts";

/** Whether a component is on the screen; an answer that arrives after it was left must not lead anywhere. */
export function useShown(): RefObject<boolean> {
  const shown = useRef(false);
  useEffect(() => {
    shown.current = true;
    return () => {
      shown.current = false;
    };
  }, []);
  return shown;
}

export function useAct(execution: ExecutionDetail, onClose: () => void) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const shown = useShown();
  const [key] = useState(newKey);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const run = (work: () => Promise<{ text: string; to?: string }>): void => {
    setBusy(true);
    setError(null);
    work().then(
      ({ text, to }) => {
        void client.invalidateQueries({ queryKey: ["execution", execution.execution_id] });
        if (!shown.current)
          return say("success", text, to ? { to: `/executions/${to}`, text: "Open the new execution" } : undefined);
        say(
          "success",
          text,
          to ? { to: `/executions/${execution.execution_id}`, text: "Open the original execution" } : undefined,
        );
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

export function Foot({
  onClose,
  busy,
  children,
}: {
  onClose: () => void;
  busy: boolean;
  children: ReactNode;
}): JSX.Element {
  return (
    <>
      <Button onClick={onClose} disabled={busy}>
        Close
      </Button>
      {children}
    </>
  );
}
