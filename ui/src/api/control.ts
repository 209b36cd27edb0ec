/** Pause and resume act at once: they can be undone. */
import { api, read } from "./client";

export async function setPaused(execution: string, paused: boolean): Promise<void> {
  const params = { path: { execution } };
  await read(
    paused
      ? api.POST("/api/v1/executions/{execution}/pause", { params })
      : api.POST("/api/v1/executions/{execution}/resume", { params }),
  );
}
