/** Which views of the document are on the screen. The choice is part of the address. */
import { useMemo, useSyncExternalStore } from "react";
import { useQueryState } from "../../screens/shell/url";

export type ViewName = "graph" | "list" | "text";
export type Views = {
  shown: ViewName;
  beside: boolean;
  narrow: boolean;
  show: (name: ViewName) => void;
  setBeside: (beside: boolean) => void;
};

function useNarrow(): boolean {
  const query = useMemo(() => window.matchMedia("(max-width: 899px)"), []);
  return useSyncExternalStore(
    (listener) => {
      query.addEventListener("change", listener);
      return () => query.removeEventListener("change", listener);
    },
    () => query.matches,
  );
}

export function useViews(): Views {
  const [parameters, setParameters] = useQueryState();
  const narrow = useNarrow();
  const named = parameters.get("view");
  const shown: ViewName = narrow ? "text" : named === "list" || named === "text" ? named : "graph";
  return {
    shown,
    narrow,
    beside: !narrow && shown !== "text" && parameters.get("text") === "1",
    show: (name) => setParameters({ view: name === "graph" ? null : name }, { replace: true }),
    setBeside: (beside) => setParameters({ text: beside ? "1" : null }, { replace: true }),
  };
}
