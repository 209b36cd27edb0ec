/** Several nodes together: lining up, laying out, duplicating, removing. */
import {
  AlignCenterHorizontal,
  AlignCenterVertical,
  AlignEndHorizontal,
  AlignEndVertical,
  AlignHorizontalDistributeCenter,
  AlignStartHorizontal,
  AlignStartVertical,
  AlignVerticalDistributeCenter,
  Copy,
  Spline,
  Trash2,
  X,
  type LucideIcon,
} from "lucide-react";
import type { JSX } from "react";
import { Button, IconButton } from "../../parts/controls";
import type { Side } from "../canvas/places";
import type { Editor } from "../state/use_editor";

const SIDES: [Side, string, LucideIcon][] = [
  ["left", "Align left", AlignStartVertical],
  ["centre", "Align centres in a column", AlignCenterVertical],
  ["right", "Align right", AlignEndVertical],
  ["top", "Align top", AlignStartHorizontal],
  ["middle", "Align middles in a row", AlignCenterHorizontal],
  ["bottom", "Align bottom", AlignEndHorizontal],
];

export function SelectionForm({ editor }: { editor: Editor }): JSX.Element {
  const { marked, readOnly } = editor;
  return (
    <aside className="edit-panel" aria-label="Selected nodes">
      <header className="edit-panel-head">
        <h2>{marked.length} nodes</h2>
        <span className="push row">
          <IconButton size="small" icon={X} label="Select nothing" onClick={() => editor.choose(null)} />
        </span>
      </header>
      <fieldset className="edit-panel-body" disabled={readOnly}>
        <legend className="sr">Selected nodes</legend>
        <div role="group" aria-label="Align" className="row wrap">
          {SIDES.map(([side, label, icon]) => (
            <IconButton key={side} icon={icon} label={label} onClick={() => editor.align(side)} />
          ))}
        </div>
        <div role="group" aria-label="Distribute" className="row wrap">
          <IconButton
            icon={AlignHorizontalDistributeCenter}
            label="Distribute horizontally"
            disabled={marked.length < 3}
            onClick={() => editor.distribute("x")}
          />
          <IconButton
            icon={AlignVerticalDistributeCenter}
            label="Distribute vertically"
            disabled={marked.length < 3}
            onClick={() => editor.distribute("y")}
          />
        </div>
        <div className="row wrap">
          <Button icon={Spline} onClick={editor.layOut}>
            Lay out
          </Button>
          <Button icon={Copy} onClick={editor.duplicate}>
            Duplicate
          </Button>
          <Button icon={Trash2} kind="danger" onClick={editor.remove}>
            Remove
          </Button>
        </div>
        <ul className="edit-marked" aria-label="Names of the selected nodes">
          {marked.slice(0, 50).map((each) => (
            <li key={each}>{each}</li>
          ))}
          {marked.length > 50 && <li className="dim">and {marked.length - 50} more</li>}
        </ul>
      </fieldset>
    </aside>
  );
}
