/** The login: a key is exchanged for a session cookie that no script can read. */
import { useState, type JSX } from "react";
import { signIn } from "../api/client";
import { Button, Field, Input } from "../parts/controls";
import { Mark } from "./mark";

export function Login(): JSX.Element {
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
          <h1>Sign in to Rune</h1>
          <p className="dim">Use an API key. An administrator creates one with</p>
          <code className="code login-code">rune keys create me --role viewer</code>
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
