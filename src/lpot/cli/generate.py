"""`lpot generate`: look at a tuned decoder, FP32 beside it."""

from __future__ import annotations

from pathlib import Path

import click

from lpot.cli.output import OK, Output, command


@click.command(short_help="Continue a prompt with a tuned decoder, next to FP32.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("prompt")
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Tokens to generate at most.",
)
@command
def generate(out: Output, run: Path, prompt: str, tokens: int) -> int:
    """Continue PROMPT with the decoder of RUN, always taking the most likely token.

    RUN is the workspace of a tuning with `approach: weight_only`. FP32's text is shown next to
    it, with the first token at which they differ.
    """
    from lpot.jobs.decoder.generate import continue_text

    with out.progress() as listener:
        listener.phase("generating")
        found = continue_text(run, prompt, tokens)
    out.show(f"low precision: {found.low}")
    if found.fp32 is not None:
        out.show(f"FP32:          {found.fp32}")
        where = found.parts_at
        same = f"the same for all {len(found.tokens)} tokens"
        out.show(same if where is None else f"they differ from token {where + 1} on")
    out.tell(found.to_json())
    return OK
