/** Light, dark or as the system asks. The choice is the only thing that the page keeps in local storage. */
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
const KEY = "rune-theme";
const listeners = new Set<() => void>();
const system = window.matchMedia("(prefers-color-scheme: dark)");

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}

let chosen: Theme = stored();

function apply(): void {
  const dark = chosen === "dark" || (chosen === "system" && system.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  for (const listener of listeners) listener();
}

system.addEventListener("change", apply);
apply();

export function setTheme(theme: Theme): void {
  chosen = theme;
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is blocked: the choice lasts until the page is closed.
  }
  apply();
}

export function useTheme(): { theme: Theme; dark: boolean } {
  const value = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => `${chosen}/${document.documentElement.dataset.theme}`,
  );
  const [theme, shown] = value.split("/");
  return { theme: theme as Theme, dark: shown === "dark" };
}
