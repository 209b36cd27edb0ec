/** The dialog that the editor shows now. */
import { useQueryClient } from "@tanstack/react-query";
import type { JSX } from "react";
import { useLocation } from "wouter";
import { say } from "../parts/toasts";
import { AddDialog } from "./dialogs/catalogue";
import { ConnectDialog, RenameDialog } from "./dialogs/connect";
import { FindDialog } from "./dialogs/find";
import { WorkflowDocument } from "./document/document";
import { maxDraftBytes, writeDraft } from "./document/drafts";
import { PublishDialog } from "./publish/publish";
import type { AddAt, Editor } from "./state/use_editor";
import { TryDialog } from "./trial/try_dialog";

function titleOf({ edge, after }: AddAt): string {
  if (edge) return `Add a node between ${edge.src} and ${edge.dst}`;
  return after ? `Add a node after ${after}` : "Add a node";
}

type Props = { editor: Editor; lastInput: unknown; onStarted: (execution: string, input: unknown) => void; onDocument: (document: WorkflowDocument) => void };

export function AskedDialog({ editor, lastInput, onStarted, onDocument }: Props): JSX.Element | null {
  const { asked, close, view } = editor;
  switch (asked?.kind) {
    case "add":
      return <AddDialog types={editor.list} title={titleOf(asked.at)} onAdd={(type) => editor.add(type, asked.at)} onClose={close} />;
    case "connect":
      return <ConnectDialog view={view} types={editor.types} outlets={editor.checked.outlets} from={asked.from} onConnect={(dst, outlet) => editor.connect(asked.from, dst, outlet)} onClose={close} />;
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
      return <Publishing editor={editor} onDocument={onDocument} />;
    default:
      return null;
  }
}

function Publishing({ editor, onDocument }: { editor: Editor; onDocument: (document: WorkflowDocument) => void }): JSX.Element {
  const { document, id, key, close } = editor;
  const client = useQueryClient();
  const [, navigate] = useLocation();
  return (
    <PublishDialog
      document={document}
      workflow={id}
      errors={editor.errors}
      onPublished={(workflow, version, base) => {
        editor.forgetDraft();
        close();
        say("success", `Published version ${version} of ${workflow}.`, { to: `/workflows/${workflow}`, text: "Show it" });
        for (const queryKey of [["workflow", workflow], ["versions", workflow], ["workflows"]]) void client.invalidateQueries({ queryKey });
        if (id === null) navigate(`/workflows/${workflow}/edit`);
        else onDocument(new WorkflowDocument(base.text, base));
      }}
      onMerged={(text, base) => {
        const merged = new WorkflowDocument(base.text, base, document.saved(maxDraftBytes));
        merged.replace(text, "merge with the published version");
        writeDraft(key, { base, saved: merged.saved(maxDraftBytes), at: Date.now() });
        close();
        onDocument(merged);
        say("success", "Merged into the draft. Publish it when it is right.");
      }}
      onClose={close}
    />
  );
}
