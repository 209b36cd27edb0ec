"""The operations that users ask for, with permissions checked by the caller and an audit log."""
