/** The problems of a draft, each with its place and, where one is known, a fix. */
import { CircleAlert, CircleCheck, TriangleAlert } from "lucide-react";
import type { JSX } from "react";
import { Button, Sentence } from "../../parts/controls";
import type { PlacedProblem } from "../document/checks";
import type { WorkflowDocument } from "../document/document";
import { fixOf, type Fix } from "../document/fixes";

export function Problems({
  document,
  isChecked,
  problems,
  onGo,
  onFix,
}: {
  document: WorkflowDocument;
  isChecked: boolean;
  problems: readonly PlacedProblem[];
  onGo: (problem: PlacedProblem) => void;
  onFix: (fix: Fix) => void;
}): JSX.Element {
  const all =
    document.error && problems.length === 0
      ? [
          {
            problem: {
              path: "",
              code: "SYNTAX",
              message: document.error.message,
              hint: "",
              severity: "error" as const,
              line: null,
              column: null,
            },
            node: null,
            start: document.error.offset ?? 0,
            end: null,
          },
        ]
      : problems;
  const list = (): JSX.Element => {
    if (all.length === 0 && !isChecked) return <p className="row dim">Not checked yet.</p>;
    if (all.length === 0)
      return (
        <p className="row dim">
          <CircleCheck size={15} aria-hidden="true" /> No problems.
        </p>
      );
    return (
      <ul tabIndex={0} aria-label="Problems of the draft">
        {all.map((each, index) => {
          const fix = fixOf(document, each);
          return (
            <li key={index} data-severity={each.problem.severity}>
              {each.problem.severity === "warning" ? (
                <TriangleAlert size={15} aria-label="Warning" />
              ) : (
                <CircleAlert size={15} aria-label="Error" />
              )}
              <span className="edit-problem-text">
                <Sentence text={each.problem.message} />
                {each.problem.hint && (
                  <span className="dim">
                    {" "}
                    <Sentence text={each.problem.hint} />
                  </span>
                )}
                {each.problem.path && <code className="dim">{each.problem.path}</code>}
              </span>
              {fix && (
                <Button size="small" onClick={() => onFix(fix)}>
                  {fix.label}
                </Button>
              )}
              <Button size="small" aria-label={`Go to ${each.problem.path || "the text"}`} onClick={() => onGo(each)}>
                Go to
              </Button>
            </li>
          );
        })}
      </ul>
    );
  };
  return (
    <section className="edit-problems" aria-label="Problems">
      {list()}
    </section>
  );
}
