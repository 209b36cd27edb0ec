/** The text that a new workflow begins with. */
export const TEMPLATE = "id: new-workflow\nnodes:\n  - id: start\n    type: input\n";
