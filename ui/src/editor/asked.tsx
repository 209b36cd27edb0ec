/** The dialog that the editor shows now. */
import { useQueryClient } from "@tanstack/react-query";
import type { JSX } from "react";
import { useLocation } from "wouter";
import { say } from "../parts/toasts";
import { AddDialog } from "./dialogs/catalogue";
import { ConnectDialog, RenameDialog } from "./dialogs/connect";
import { FindDialog } from "./dialogs/find";
import { PublishDialog } from "./publish/publish";
import type { AddAt, Editor } from "./state/use_editor";
import { TryDialog } from "./trial/try_dialog";

function titleOf({ edge, after }: AddAt): string {
  if (edge) return `Add a node between ${edge.src} and ${edge.dst}`;
  return after ? `Add a node after ${after}` : "Add a node";
}

type Props = {
  editor: Editor;
  lastInput: unknown;
  onStarted: (execution: string, input: unknown) => void;
  hideNotice: () => void;
};

export function AskedDialog({ editor, lastInput, onStarted, hideNotice }: Props): JSX.Element | null {
  const { asked, close, view } = editor;
  switch (asked?.kind) {
    case "add":
      return (
        <AddDialog
          types={editor.list}
          title={titleOf(asked.at)}
          onAdd={(type) => editor.add(type, asked.at)}
          onClose={close}
        />
      );
    case "connect":
      return (
        <ConnectDialog
          view={view}
          types={editor.types}
          outlets={editor.checked.outlets}
          from={asked.from}
          onConnect={(dst, outlet) => editor.connect(asked.from, dst, outlet)}
          onClose={close}
        />
      );
    case "rename":
      return <RenameDialog view={view} id={asked.id} onRename={(to) => editor.rename(asked.id, to)} onClose={close} />;
    case "find":
      return (
        <FindDialog
          view={view}
          onFound={(id) => {
            close();
            editor.goTo(id);
          }}
          onClose={close}
        />
      );
    case "try":
      return (
        <TryDialog
          editor={editor}
          last={lastInput}
          onStarted={(execution, input) => {
            onStarted(execution, input);
            close();
          }}
          onClose={close}
        />
      );
    case "publish":
      return <Publishing editor={editor} hideNotice={hideNotice} />;
    default:
      return null;
  }
}

function Publishing({ editor, hideNotice }: { editor: Editor; hideNotice: () => void }): JSX.Element {
  const { document, id, draft, close } = editor;
  const client = useQueryClient();
  const [, navigate] = useLocation();
  return (
    <PublishDialog
      document={document}
      workflow={id}
      errors={editor.errors}
      onPublished={(workflow, version, base) => {
        close();
        say("success", `Published version ${version} of ${workflow}.`, {
          to: `/workflows/${workflow}`,
          text: "Show it",
        });
        for (const queryKey of [["workflow", workflow], ["versions", workflow], ["workflows"]])
          void client.invalidateQueries({ queryKey });
        hideNotice();
        if (id !== null) return draft.current?.publish(base);
        draft.current?.remove();
        navigate(`/workflows/${workflow}/edit`);
      }}
      onMerged={(text, base) => {
        document.replace(text, "merge with the published version", { base });
        draft.current?.write();
        hideNotice();
        close();
        say("success", "Merged into the draft. Publish it when it is right.");
      }}
      onClose={close}
    />
  );
}
