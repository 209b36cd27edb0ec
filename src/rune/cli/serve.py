"""`rune serve`: a process of a cluster that takes part until it is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rune.settings import Settings

serve = typer.Typer(
    help="Take part in a cluster: run nodes, fire timers and look after what was lost, or answer the API.",
    no_args_is_help=True,
)

Nodes = Annotated[
    list[str] | None, typer.Option("--nodes", help="A Python module with custom nodes; may be given again.")
]
HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=0,
        max=65_535,
        help="Answer /healthz, /readyz, /version and /metrics here; 0: nowhere.",
        show_default="0",
    ),
]


@serve.command()
def worker(
    queues: Annotated[
        str | None,
        typer.Option(
            "--queues", help="The queues whose nodes it runs, separated by commas.", show_default="default"
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, max=10_000, help="Nodes that may be under way at once.")
    ] = None,
    nodes: Nodes = None,
    health_port: HealthPort = None,
) -> None:
    """Run nodes until stopped. SIGTERM: takes nothing more and lets what runs finish within the grace period.

    Any number of these may run, on any number of machines. A node with `queue: gpu` is run only by a worker of that
    queue. Exits 0 after a stop, 2 on a bad configuration, 3 when a store cannot be reached at the start.

    Example: rune serve worker --queues gpu,default --slots 8
    """
    from msgspec.structs import replace  # noqa: PLC0415 - help must be quick

    def changed(settings: Settings) -> Settings:
        named = settings.queues if queues is None else tuple(each.strip() for each in queues.split(","))
        return replace(
            settings,
            queues=named,
            slots=slots or settings.slots,
            nodes=(*settings.nodes, *(nodes or ())),
            health_port=settings.health_port if health_port is None else health_port,
        )

    raise typer.Exit(_serve(frozenset({"worker"}), changed))


@serve.command()
def scheduler(nodes: Nodes = None, health_port: HealthPort = None) -> None:
    """Fire timers, send again what was lost, tidy up, until stopped. Several share the work.

    It has to know the custom nodes of the definitions that it looks after, as workers do.

    Example: rune serve scheduler --nodes acme.rune_nodes
    """
    from msgspec.structs import replace  # noqa: PLC0415 - help must be quick

    def changed(settings: Settings) -> Settings:
        return replace(
            settings,
            nodes=(*settings.nodes, *(nodes or ())),
            health_port=settings.health_port if health_port is None else health_port,
        )

    raise typer.Exit(_serve(frozenset({"scheduler"}), changed))


@serve.command()
def api(
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; elsewhere than here it takes a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65_535, help="0 takes a free one.")] = 8080,
    nodes: Nodes = None,
) -> None:
    """Answer the API until stopped. Any number of these may run: each knows what the others were told.

    It runs no nodes. Without a key in RUNE_API_KEY it listens on this machine only, and asks for no login.
    /healthz, /readyz and /version are on the same port.

    Examples: rune serve api; RUNE_API_KEY=… rune serve api --host 0.0.0.0 --port 80
    """
    from msgspec.structs import replace  # noqa: PLC0415 - help must be quick

    from rune.cli.serving import answer  # noqa: PLC0415

    def changed(settings: Settings) -> Settings:
        return replace(settings, nodes=(*settings.nodes, *(nodes or ())))

    raise typer.Exit(answer(host, port, changed))


def _serve(roles: frozenset[str], changed: object) -> int:
    from rune.cli.serving import take_part  # noqa: PLC0415 - help must be quick

    return take_part(roles, changed)  # type: ignore[arg-type]
