"""Fine-tuning BERT on SQuAD, under the name the tutorial gives it."""

from __future__ import annotations

from run_squad_tune import fail, main

from lpot import LpotError

if __name__ == "__main__":
    try:
        main()
    except LpotError as error:
        raise fail(str(error)) from error
