#!/bin/bash
# Every TensorFlow example once, on slices of real data (LPOT_DATA), in a few minutes.
set -e
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
data=${LPOT_DATA:-$here/../../../shared/data}
export PYTHON=${PYTHON:-python} TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
if [ ! -d "$data/minilm_l6_squad" ]; then
  echo "examples/tensorflow: skipped, LPOT_DATA has no models and data"
  exit 0
fi
data=$(cd "$data" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

echo "== BERT on SQuAD: 40 questions"
mkdir squad
"$PYTHON" - "$data/squad/dev-slice-v1.1.json" squad/dev-v1.1.json <<'P'
import json, sys
content = json.load(open(sys.argv[1]))
content["data"] = content["data"][:8]
for article in content["data"]:
    article["paragraphs"] = article["paragraphs"][:1]
    article["paragraphs"][0]["qas"] = article["paragraphs"][0]["qas"][:5]
json.dump(content, open(sys.argv[2], "w"))
P
bert=$here/nlp/bert
bash "$bert/prepare_dataset.sh" --output_dir=./data --source=squad
bash "$bert/prepare_model.sh" --output_dir=./model --source="$data/minilm_l6_squad"
# So few questions tell little: the bar is looser than the tutorial's.
sed -e 's/relative:  0.01/relative:  0.05/' -e 's/sampling_size: 500/sampling_size: 40/' \
  "$bert/bert.yaml" > bert.yaml
flags=(--dataset_location=data/wwm_uncased_L-24_H-1024_A-16 --max_seq_length=192)
bash "$bert/run_tuning.sh" "${flags[@]}" --config=bert.yaml --input_model=model \
  --output_model=bert_int8.pb
bash "$bert/run_benchmark.sh" "${flags[@]}" --input_model=bert_int8.pb --mode=accuracy \
  --vocab_file=model/vocab.txt

echo "== SSDLite on COCO: 24 images"
detection=$here/object_detection
. "$detection/prepare_dataset.sh" --output_dir=coco --source="$data/coco2017-slice" \
  --parts=val,train
sed 's/relative: 0.01/relative: 0.05/' "$detection/ssdlite_mobilenet_v2.yaml" > ssdlite.yaml
flags=(--topology=ssdlite_mobilenet_v2 --dataset_location=coco/coco_val.record)
bash "$detection/run_tuning.sh" "${flags[@]}" --config=ssdlite.yaml --limit=24 \
  --calibration_location=coco/coco_train.record --output_model=ssdlite_int8.pb \
  --input_model="$data/ssdlite_mobilenet_v2_coco/frozen_inference_graph.pb"
bash "$detection/run_benchmark.sh" "${flags[@]}" --input_model=ssdlite_int8.pb \
  --mode=benchmark --iters=20

echo "== Style transfer: 4 pairs"
style=$here/style_transfer
mkdir content_images style_images
for file in $(ls "$data"/coco2017-slice/train2017_calib/*.jpg | head -n 2); do
  cp "$file" content_images/
done
for file in $(ls "$data"/coco2017-slice/train2017_calib/*.jpg | tail -n 2); do
  cp "$file" style_images/
done
"$PYTHON" "$style/style_graph.py" --output_dir=./style_model
"$PYTHON" "$style/style_tune.py" --output_dir=./result --style_images_paths=./style_images \
  --content_images_paths=./content_images --model_dir=./style_model --precision=quantized
echo "== examples/tensorflow: all ran"
