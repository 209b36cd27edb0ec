/** Chooses one of many by typing: arrows move, Enter takes. */
import type { LucideIcon } from "lucide-react";
import { useMemo, useState, type JSX, type KeyboardEvent } from "react";
import { Field, Input } from "../../parts/controls";
import { Dialog } from "../../parts/dialog";

export type Option<T> = { id: string; icon: LucideIcon; name: string; about: string; value: T };

const MAX_SHOWN = 100;

type Props<T> = {
  title: string;
  label: string;
  list: string;
  find: (search: string) => Option<T>[];
  onChoose: (value: T) => void;
  onClose: () => void;
};

export function Chooser<T>({ title, label, list, find, onChoose, onClose }: Props<T>): JSX.Element {
  const [search, setSearch] = useState("");
  const [at, setAt] = useState(0);
  const options = useMemo(() => find(search).slice(0, MAX_SHOWN), [find, search]);
  const chosen = options[Math.min(at, options.length - 1)];
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    setAt(Math.max(0, Math.min(options.length - 1, at + step)));
  };
  return (
    <Dialog title={title} onClose={onClose} onSubmit={() => chosen && onChoose(chosen.value)}>
      <Field label={label}>
        {(ids) => (
          <Input
            {...ids}
            autoFocus
            role="combobox"
            aria-expanded="true"
            aria-controls="chooser-options"
            aria-activedescendant={chosen ? `chooser-${chosen.id}` : undefined}
            value={search}
            onChange={(event) => {
              setSearch(event.target.value);
              setAt(0);
            }}
            onKeyDown={onKeyDown}
          />
        )}
      </Field>
      <ul id="chooser-options" role="listbox" aria-label={list} className="edit-choices">
        {options.map((each) => (
          <li
            key={each.id}
            id={`chooser-${each.id}`}
            role="option"
            aria-selected={each === chosen}
            ref={(element) => {
              if (each === chosen) element?.scrollIntoView({ block: "nearest" });
            }}
            onClick={() => onChoose(each.value)}
          >
            <each.icon size={15} aria-hidden="true" />
            <b>{each.name}</b>
            <span className="dim clip">{each.about}</span>
          </li>
        ))}
      </ul>
      {options.length === 0 && <p className="dim">Nothing matches.</p>}
    </Dialog>
  );
}
