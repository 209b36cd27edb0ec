/** A modal dialog on the native element: focus stays inside, Escape closes it, the page behind is inert. */
import { X } from "lucide-react";
import { useEffect, useId, useRef, type JSX, type ReactNode } from "react";
import { IconButton } from "./controls";

const FIELDS = ".dialog-body :is(input, textarea, select):not(:disabled, [type=hidden], [type=checkbox], [type=radio])";

export function Dialog({
  title,
  lead,
  wide,
  onClose,
  children,
  foot,
  onSubmit,
}: {
  title: string;
  lead?: ReactNode;
  wide?: boolean;
  onClose: () => void;
  children?: ReactNode;
  foot?: ReactNode;
  onSubmit?: () => void;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    if (element && !element.open) {
      element.showModal();
      // The native element focuses its first control, which is the one that closes it.
      element.querySelector<HTMLElement>(FIELDS)?.focus();
    }
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      className="dialog"
      data-size={wide ? "wide" : undefined}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      <form
        style={{ display: "contents" }}
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          onSubmit?.();
        }}
      >
        <header className="dialog-head">
          <div style={{ flex: 1, minInlineSize: 0 }}>
            <h2 id={id}>{title}</h2>
            {lead && <p>{lead}</p>}
          </div>
          <IconButton icon={X} label="Close" onClick={onClose} />
        </header>
        <div className="dialog-body">{children}</div>
        {foot && <footer className="dialog-foot">{foot}</footer>}
      </form>
    </dialog>
  );
}
