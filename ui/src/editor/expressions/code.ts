/** The text pane: CodeMirror in a shadow root, where its styles need no exception in the content security policy. */
import {
  autocompletion,
  completionKeymap,
  startCompletion,
  type Completion,
  type CompletionContext,
  type CompletionResult,
} from "@codemirror/autocomplete";
import { defaultKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, bracketMatching, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { Annotation, EditorSelection, EditorState, RangeSetBuilder, type Extension } from "@codemirror/state";
import {
  Decoration,
  EditorView,
  ViewPlugin,
  drawSelection,
  highlightActiveLine,
  keymap,
  lineNumbers,
  placeholder,
  type DecorationSet,
  type ViewUpdate,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { lexTemplate, lexWhole, type Names, type Token } from "../../text/references";
import { LineEnds, plainOf } from "../../text/line_ends";
import { applyEdits, type TextEdit } from "../../text/tree";

const External = Annotation.define<boolean>();

const THEME = EditorView.theme({
  "&": { height: "100%", fontSize: "12.5px", color: "var(--ink)", backgroundColor: "var(--surface)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--ink-3)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--accent-soft)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--raised)",
    color: "var(--ink)",
    border: "1px solid var(--line-strong)",
    borderRadius: "8px",
  },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-ink)" },
  ".cm-completionDetail": { color: "var(--ink-2)" },
  "li[aria-selected] .cm-completionDetail": { color: "inherit" },
  // The marks of the linter are images of the scheme `data`, which the content security policy refuses.
  ".cm-lint-marker": { content: "normal", width: "0.7em", height: "0.7em", marginTop: "0.4em", borderRadius: "50%" },
  ".cm-lint-marker-error": { content: "normal", backgroundColor: "var(--failed)" },
  ".cm-lint-marker-warning": { content: "normal", backgroundColor: "var(--waiting)", borderRadius: "0" },
  ".cm-lintRange": { backgroundImage: "none", textDecorationLine: "underline", textDecorationStyle: "wavy" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecorationColor: "var(--failed)" },
  ".cm-lintRange-warning": { backgroundImage: "none", textDecorationColor: "var(--waiting)" },
  ".cm-placeholder": { color: "var(--ink-3)" },
  ".cm-rune-reference": { color: "var(--accent-text)", fontWeight: "600" },
  ".cm-rune-text": { color: "var(--success)" },
  ".cm-rune-number, .cm-rune-literal": { color: "var(--running)" },
  ".cm-rune-keyword": { color: "var(--paused)" },
  ".cm-rune-bracket": { color: "var(--ink-2)" },
});

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent-text)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--success)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--running)" },
  { tag: tags.comment, color: "var(--ink-3)", fontStyle: "italic" },
  { tag: tags.keyword, color: "var(--paused)" },
]);

/**
 * Replaces a selection by typed text as a transaction. Left to the browser, typing over coloured text carries the colours
 * over in a style attribute, which the content security policy refuses.
 */
const TYPED_OVER = EditorView.domEventHandlers({
  beforeinput: (event, view) => {
    const isTyped = event.inputType === "insertText" && event.data !== null && !event.isComposing;
    if (!isTyped || view.state.readOnly || view.state.selection.ranges.every((each) => each.empty)) return false;
    view.dispatch(view.state.replaceSelection(event.data as string), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

/** A shadow root to mount an editor in. A second call for the same element returns the same root. */
function rootOf(host: HTMLElement): ShadowRoot {
  return host.shadowRoot ?? host.attachShadow({ mode: "open" });
}

export type Handlers = {
  onEdits: (edits: TextEdit[]) => void;
  onUndo: () => void;
  onRedo: () => void;
  onCursor: (offset: number) => void;
};

export type Pane = {
  view: EditorView;
  /** Applies edits that another view made. */
  apply: (edits: readonly TextEdit[], text: string) => void;
  diagnose: (
    found: readonly { from: number; to: number; severity: "error" | "warning"; message: string; source: string }[],
  ) => void;
  reveal: (offset: number) => void;
  /** To be called when completion may know more than before. */
  refresh: () => void;
  destroy: () => void;
};

/** `place`: where `at` stands in the document, whose lines may end with two characters. */
export type Suggest = (context: {
  text: string;
  at: number;
  place?: number;
}) => { from: number; options: Completion[] } | null;

type Completions = {
  extension: Extension;
  /** Asks again at the cursor if more is known than when completion last answered there. */
  refresh: (view: EditorView) => void;
};

function completions(suggest: Suggest): Completions {
  let answered: { at: number; labels: string } | null = null;
  const ask = (state: EditorState, at: number): ReturnType<Suggest> => {
    const found = suggest({ text: state.doc.toString(), at });
    return found && found.options.length > 0 ? found : null;
  };
  const labels = (found: ReturnType<Suggest>): string => (found?.options ?? []).map((each) => each.label).join("\n");
  return {
    extension: autocompletion({
      icons: false,
      override: [
        (context: CompletionContext): CompletionResult | null => {
          const found = ask(context.state, context.pos);
          answered = { at: context.pos, labels: labels(found) };
          return found && { from: found.from, options: found.options, validFor: /^[$\w-]*$/ };
        },
      ],
    }),
    refresh: (view) => {
      const { head } = view.state.selection.main;
      if (view.hasFocus && answered?.at === head && labels(ask(view.state, head)) !== answered.labels)
        startCompletion(view);
    },
  };
}

export function openPane(
  host: HTMLElement,
  text: string,
  isJson: boolean,
  label: string,
  readOnly: boolean,
  suggest: Suggest,
  handlers: Handlers,
): Pane {
  const root = rootOf(host);
  const history = (run: () => void) => () => {
    run();
    return true;
  };
  let ends = new LineEnds(text);
  const completion = completions(({ text: shown, at }) => suggest({ text: shown, at, place: ends.toText(at) }));
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: ends.plain,
      extensions: [
        EditorState.readOnly.of(readOnly),
        keymap.of([
          { key: "Mod-z", run: history(handlers.onUndo), preventDefault: true },
          { key: "Mod-y", mac: "Mod-Shift-z", run: history(handlers.onRedo), preventDefault: true },
          { key: "Mod-Shift-z", run: history(handlers.onRedo), preventDefault: true },
          ...completionKeymap,
          ...lintKeymap,
          ...defaultKeymap,
        ]),
        lineNumbers(),
        lintGutter(),
        drawSelection(),
        highlightActiveLine(),
        bracketMatching(),
        indentUnit.of("  "),
        isJson ? json() : yaml(),
        syntaxHighlighting(COLOURS),
        completion.extension,
        TYPED_OVER,
        THEME,
        EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", tabindex: "0" }),
        EditorView.updateListener.of((update: ViewUpdate) => {
          if (update.docChanged && !update.transactions.some((each) => each.annotation(External))) {
            const edits: TextEdit[] = [];
            update.changes.iterChanges((start, end, _from, _to, inserted) =>
              edits.push({ start, end, text: inserted.toString() }),
            );
            const meant = ends.editsOf(edits);
            ends = new LineEnds(applyEdits(ends.text, meant));
            handlers.onEdits(meant);
          }
          if (update.selectionSet && update.view.hasFocus)
            handlers.onCursor(ends.toText(update.state.selection.main.head));
        }),
      ],
    }),
  });
  return {
    view,
    apply: (edits, wanted) => {
      const changes = edits.map((each) => ({
        from: ends.toPlain(each.start),
        to: ends.toPlain(each.end),
        insert: plainOf(each.text),
      }));
      ends = new LineEnds(wanted);
      const length = view.state.doc.length;
      const fits = changes.every((each) => each.to <= length);
      if (fits) view.dispatch({ changes, annotations: External.of(true) });
      if (!fits || view.state.doc.toString() !== ends.plain)
        view.dispatch({
          changes: { from: 0, to: view.state.doc.length, insert: ends.plain },
          annotations: External.of(true),
        });
    },
    diagnose: (found) => {
      const length = view.state.doc.length;
      const moved = found.map((each) => ({ ...each, from: ends.toPlain(each.from), to: ends.toPlain(each.to) }));
      const shown: Diagnostic[] = moved
        .filter((each) => each.from <= length)
        .map((each) => ({ ...each, to: Math.min(Math.max(each.to, each.from), length) }));
      view.dispatch(
        setDiagnostics(
          view.state,
          shown.sort((a, b) => a.from - b.from),
        ),
      );
    },
    reveal: (offset) => {
      const at = Math.min(ends.toPlain(offset), view.state.doc.length);
      view.dispatch({ selection: EditorSelection.cursor(at), effects: EditorView.scrollIntoView(at, { y: "center" }) });
      view.focus();
    },
    refresh: () => completion.refresh(view),
    destroy: () => view.destroy(),
  };
}

function expressionColours(names: () => Names, isWhole: () => boolean): Extension {
  const classes: Partial<Record<Token["kind"], Decoration>> = {};
  const decoration = (kind: Token["kind"]): Decoration =>
    (classes[kind] ??= Decoration.mark({ class: `cm-rune-${kind}` }));
  const build = (view: EditorView): DecorationSet => {
    const builder = new RangeSetBuilder<Decoration>();
    const text = view.state.doc.toString();
    const { tokens } = isWhole() ? lexWhole(text, names()) : lexTemplate(text, names());
    for (const token of tokens)
      if (token.end > token.start) builder.add(token.start, token.end, decoration(token.kind));
    return builder.finish();
  };
  return ViewPlugin.fromClass(
    class {
      decorations: DecorationSet;
      constructor(view: EditorView) {
        this.decorations = build(view);
      }
      update(update: ViewUpdate): void {
        if (update.docChanged) this.decorations = build(update.view);
      }
    },
    { decorations: (plugin) => plugin.decorations },
  );
}

export type ExpressionOptions = {
  label: string;
  describedBy: string | undefined;
  names: () => Names;
  isWhole: () => boolean;
  suggest: Suggest;
  onChange: (text: string) => void;
};

/** A small editor for one expression or template. */
export function openExpression(
  host: HTMLElement,
  text: string,
  options: ExpressionOptions,
): { set: (text: string) => void; refresh: () => void; destroy: () => void } {
  const root = rootOf(host);
  const completion = completions(options.suggest);
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        keymap.of([...completionKeymap, ...defaultKeymap]),
        EditorView.lineWrapping,
        bracketMatching(),
        placeholder("{{ … }}"),
        expressionColours(options.names, options.isWhole),
        completion.extension,
        TYPED_OVER,
        THEME,
        EditorView.theme({ "&": { height: "auto", borderRadius: "8px" }, ".cm-content": { padding: "7px 4px" } }),
        EditorView.contentAttributes.of({ "aria-label": options.label, spellcheck: "false", tabindex: "0" }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !update.transactions.some((each) => each.annotation(External)))
            options.onChange(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    set: (next) => {
      if (view.state.doc.toString() !== next)
        view.dispatch({
          changes: { from: 0, to: view.state.doc.length, insert: next },
          annotations: External.of(true),
        });
    },
    refresh: () => completion.refresh(view),
    destroy: () => view.destroy(),
  };
}
