/** What is chosen on a screen is part of its address, so that a link shows what the sender saw. */
import { useCallback, useMemo } from "react";
import { useLocation, useSearch } from "wouter";
import { changed, type Change } from "./query";

export function useQueryState(): [URLSearchParams, (change: Change, options?: { replace?: boolean }) => void] {
  const search = useSearch();
  const [location, navigate] = useLocation();
  const parameters = useMemo(() => new URLSearchParams(search), [search]);
  const set = useCallback(
    (change: Change, options?: { replace?: boolean }) => {
      navigate(`${location}${changed(window.location.search, change)}`, { replace: options?.replace ?? false });
    },
    [location, navigate],
  );
  return [parameters, set];
}
