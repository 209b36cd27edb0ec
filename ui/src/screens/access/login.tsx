/** The login: a key is exchanged for a session cookie that no script can read. */
import { useEffect, useRef, useState, type JSX, type ReactNode } from "react";
import { signIn } from "../../api/client";
import { Button, Field, Input } from "../../parts/controls";
import { Mark } from "../shell/mark";

/** A dialog, because one that was open when the session expired keeps everything outside of it from being used. */
function Over({ children }: { children: ReactNode }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    element?.querySelector("input")?.focus();
    return () => element?.close();
  }, []);
  return (
    <dialog ref={dialog} className="login-over" aria-label="Sign in again" onCancel={(event) => event.preventDefault()}>
      {children}
    </dialog>
  );
}

/** `over`: the session has expired, and what was typed is kept behind the login. */
export function Login({ over }: { over: boolean }): JSX.Element {
  const form = <LoginForm over={over} />;
  return over ? <Over>{form}</Over> : form;
}

function LoginForm({ over }: { over: boolean }): JSX.Element {
  const [key, setKey] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  return (
    <main className="login">
      <form
        className="card login-card"
        onSubmit={(event) => {
          event.preventDefault();
          if (key.trim() === "") return setError("Enter an API key.");
          setBusy(true);
          signIn(key.trim()).catch((problem: { status?: number; message: string }) => {
            setError(problem.status === 401 ? "This key is not valid." : problem.message);
            setBusy(false);
          });
        }}
      >
        <Mark size={40} />
        <div>
          <h1>{over ? "Your session has expired" : "Sign in to Rune"}</h1>
          {over ? (
            <p className="dim">
              Sign in again to continue where you were. Nothing that you typed is lost; if somebody else signs in, they
              do not see it.
            </p>
          ) : (
            <>
              <p className="dim">Use an API key. An administrator creates one with</p>
              <code className="code login-code">rune keys create me --role viewer</code>
            </>
          )}
        </div>
        <Field label="API key" error={error}>
          {(ids) => (
            <Input
              {...ids}
              type="password"
              autoComplete="current-password"
              autoFocus
              value={key}
              onChange={(event) => {
                setKey(event.target.value);
                setError(null);
              }}
            />
          )}
        </Field>
        <Button type="submit" kind="primary" size="large" disabled={busy}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
