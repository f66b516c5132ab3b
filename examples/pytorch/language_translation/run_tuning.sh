#!/bin/bash
# ./run_tuning.sh --topology=bert_base_MRPC --dataset_location=data --input_model=DIR --output_model=DIR
set -eu
here=$(cd "$(dirname "$0")" && pwd)
topology=bert_base_MRPC
options=()
for word in "$@"; do
  value=${word#*=}
  case $word in
    --topology=* | --task_name=*) topology=$value ;;
    --dataset_location=*) options+=("--data_dir=$value") ;;
    --input_model=*) options+=("--model_name_or_path=$value") ;;
    --output_model=*) options+=("--output_dir=$value") ;;
    --config=*) options+=("--config=$value") ;;
    --batch_size=*) options+=("--per_gpu_eval_batch_size=$value") ;;
    --max_eval_samples=* | --max_seq_length=* | --manual_stubs) options+=("$word") ;;
    *) echo "error: $word is not known; known are --topology= --dataset_location= --input_model=" \
            "--output_model= --config= --batch_size= --max_eval_samples= --max_seq_length=" \
            "--manual_stubs" >&2; exit 2 ;;
  esac
done
for need in data_dir:dataset_location model_name_or_path:input_model output_dir:output_model; do
  case " ${options[*]-} " in
    *" --${need%%:*}="*) ;;
    *) echo "error: --${need##*:}= is needed" >&2; exit 2 ;;
  esac
done
task=${topology##*_}
script=run_glue_tune.py
case $task in [sS][qQ][uU][aA][dD]) script=run_squad_tune.py ;; esac
exec "${PYTHON:-python}" "$here/examples/$script" --task_name="$task" --tune --no_cuda \
  ${options[@]+"${options[@]}"}
