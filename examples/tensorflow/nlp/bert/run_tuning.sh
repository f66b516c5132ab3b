#!/bin/bash
# Tune BERT:
#   bash run_tuning.sh --dataset_location=data/wwm_uncased_L-24_H-1024_A-16 \
#        --input_model=./model --output_model=./bert_int8.pb [--config=bert.yaml]
# Any other --flag=value goes to tune_squad.py.
set -e
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
config=$here/bert.yaml
more=()
for word in "$@"; do
  case $word in
    --topology=*) ;;
    --config=*) config=${word#*=} ;;
    --batch_size=*) more+=("--predict_batch_size=${word#*=}") ;;
    --*=*) more+=("$word") ;;
    *) echo "$word: expected --key=value" >&2; exit 2 ;;
  esac
done
exec "${PYTHON:-python}" "$here/tune_squad.py" --mode=tune --config="$config" "${more[@]}"
