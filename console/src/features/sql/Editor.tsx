// The editor is in a shadow root: only there can it have styles of its own where a page may have no inline ones.
import { autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { PostgreSQL, type SQLNamespace, sql } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { Compartment, type Extension, Prec, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  highlightSpecialChars,
  keymap,
  lineNumbers,
  placeholder,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { type Ref, useEffect, useImperativeHandle, useLayoutEffect, useRef } from "react";
import type { Catalogue } from "../../api/sql";
import type { Span } from "../../lib/statements";

export interface EditorHandle {
  text: () => string;
  /** What is selected, or the place of the cursor. */
  selection: () => Span;
  /** Puts a name at the cursor, apart from what is before it. */
  insert: (name: string) => void;
  /** Shows that something is wrong there, until the text changes. */
  mark: (span: Span) => void;
  focus: () => void;
}

interface EditorProps {
  handle: Ref<EditorHandle>;
  label: string;
  initial: string;
  catalogue: Catalogue | undefined;
  onChange: (text: string) => void;
  /** Run what is selected or at the cursor, or everything. */
  onRun: (all: boolean) => void;
}

const setMark = StateEffect.define<Span>();
const wrong = Decoration.mark({ class: "cm-wrong" });
const marks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(shown, { docChanged, effects }) {
    const set = effects.find((effect) => effect.is(setMark));
    if (set) return Decoration.set([wrong.range(set.value.from, set.value.to)]);
    return docChanged ? Decoration.none : shown;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--series-3)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--series-2)" },
  { tag: [tags.lineComment, tags.blockComment], color: "var(--quiet)", fontStyle: "italic" },
  { tag: tags.typeName, color: "var(--series-4)" },
  { tag: tags.standard(tags.name), color: "var(--series-5)" },
]);

const look = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", minHeight: "168px", maxHeight: "44dvh" },
  ".cm-content": { padding: "12px 0", caretColor: "var(--text)" },
  // When all of a text is replaced, Chromium writes the colours of the old one on the line.
  ".cm-line": { color: "inherit !important", fontWeight: "inherit !important" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--quiet)", border: "none", paddingLeft: "4px" },
  ".cm-cursor": { borderLeftColor: "var(--text)", borderLeftWidth: "2px" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--accent) 22%, transparent)",
  },
  ".cm-placeholder": { color: "var(--quiet)" },
  ".cm-wrong": {
    textDecoration: "underline wavy var(--bad)",
    textUnderlineOffset: "4px",
    backgroundColor: "var(--bad-band)",
  },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { backgroundColor: "var(--soft)", outline: "1px solid var(--line)" },
  ".cm-tooltip": {
    border: "1px solid var(--line)",
    borderRadius: "var(--radius)",
    backgroundColor: "var(--surface)",
    boxShadow: "var(--shadow-2)",
    overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "240px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--soft)", color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal", marginLeft: "12px" },
  ".cm-completionIcon": { display: "none" },
});

/** Schemas, tables and columns, as completion wants them. */
function namespace({ relations }: Catalogue): SQLNamespace {
  const schemas: Record<string, Record<string, SQLNamespace>> = {};
  for (const { schema, name, columns } of relations) {
    const inSchema = (schemas[schema] ??= {});
    inSchema[name] = columns.map((column) => ({ label: column.name, type: "property", detail: column.type }));
  }
  return schemas;
}

function language(catalogue: Catalogue | undefined): Extension {
  return sql({ dialect: PostgreSQL, ...(catalogue && { schema: namespace(catalogue), defaultSchema: "public" }) });
}

function handleOf(view: EditorView): EditorHandle {
  const put = (from: number, to: number, insert: string) => {
    view.dispatch({ changes: { from, to, insert }, selection: { anchor: from + insert.length }, scrollIntoView: true });
    view.focus();
  };
  const selection = () => view.state.selection.main;
  return {
    text: () => view.state.doc.toString(),
    selection,
    insert: (name) => {
      const { from, to } = selection();
      const isApart = /^$|[\s.,(]/.test(view.state.sliceDoc(Math.max(0, from - 1), from));
      put(from, to, isApart ? name : ` ${name}`);
    },
    mark: ({ from, to }) => {
      const length = view.state.doc.length;
      const span = { from: Math.min(from, Math.max(0, length - 1)), to: Math.min(Math.max(to, from + 1), length) };
      if (span.from >= span.to) return;
      view.dispatch({ effects: [setMark.of(span), EditorView.scrollIntoView(span.from)] });
    },
    focus: () => view.focus(),
  };
}

export function Editor({ handle, label, initial, catalogue, onChange, onRun }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const parts = useRef(new Compartment());
  const hears = useRef({ onChange, onRun });
  hears.current = { onChange, onRun };
  const first = useRef({ initial, catalogue, label });
  useLayoutEffect(() => {
    const element = host.current;
    if (!element) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const run = (all: boolean) => (editor: EditorView) => {
      closeCompletion(editor);
      hears.current.onRun(all);
      return true;
    };
    const created = new EditorView({
      root,
      parent: root,
      doc: first.current.initial,
      extensions: [
        Prec.highest(keymap.of([{ key: "Mod-Enter", run: run(false) }, { key: "Mod-Shift-Enter", run: run(true) }])),
        lineNumbers(),
        history(),
        highlightSpecialChars(),
        drawSelection(),
        bracketMatching(),
        closeBrackets(),
        autocompletion({ icons: false }),
        parts.current.of(language(first.current.catalogue)),
        syntaxHighlighting(colours),
        marks,
        look,
        EditorView.lineWrapping,
        placeholder("select …"),
        EditorView.contentAttributes.of({ "aria-label": first.current.label, autocapitalize: "off", autocorrect: "off" }),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) hears.current.onChange(update.state.doc.toString());
        }),
      ],
    });
    view.current = created;
    return () => created.destroy();
  }, []);
  useEffect(() => {
    view.current?.dispatch({ effects: parts.current.reconfigure(language(catalogue)) });
  }, [catalogue]);
  // After the effect that makes it, and so again with it.
  useImperativeHandle(handle, () => handleOf(view.current as EditorView), []);
  return <div ref={host} className="editor" />;
}
