/** Shows a defect of a screen in its place and keeps the rest of the page usable. */
import { Bug } from "lucide-react";
import { Component, type ReactNode } from "react";
import { Blank, Button } from "../../parts/controls";

export class Boundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state = { error: null as Error | null };

  static getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }

  override render(): ReactNode {
    if (!this.state.error) return this.props.children;
    return (
      <Blank
        icon={Bug}
        title="This screen failed"
        action={<Button onClick={() => window.location.reload()}>Reload the page</Button>}
      >
        {this.state.error.message}
      </Blank>
    );
  }
}
