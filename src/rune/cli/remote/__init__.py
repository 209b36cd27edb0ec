"""The desk and the reader of a server elsewhere, for the commands of this machine."""
