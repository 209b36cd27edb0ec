/** The panel at the right: a node, an edge, several nodes together, or the document itself. */
import type { JSX } from "react";
import type { Editor } from "../state/use_editor";
import { DocumentForm } from "./document_form";
import { EdgeForm } from "./edge_form";
import { NodeForm } from "./node_form";
import { SelectionForm } from "./selection_form";

export function Panel({ editor, onStarted }: { editor: Editor; onStarted: (execution: string) => void }): JSX.Element {
  if (editor.marked.length > 1) return <SelectionForm editor={editor} />;
  if (editor.node) return <NodeForm key={editor.node.id} node={editor.node} editor={editor} onStarted={onStarted} />;
  if (editor.edge) return <EdgeForm edge={editor.edge} editor={editor} />;
  return <DocumentForm editor={editor} />;
}
