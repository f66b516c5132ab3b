"""LabelShift, SquadV1 and boxes: against the published rules written plainly, and on real data."""

from __future__ import annotations

import json
import os
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from lpot.core.errors import ConfigError, DataError
from lpot.data.postprocess import (
    DetectionBoxes,
    LabelShift,
    SquadV1,
    SquadV1PostTransform,
    as_postprocess,
    decode_boxes,
    nms,
)
from lpot.data.postprocess.squad import original_text

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
SLICE = DATA / "squad" / "dev-slice2-v1.1.json"
VOCABULARY = DATA / "minilm_l6_bert" / "vocab.txt"

RawResult = namedtuple("RawResult", ["unique_id", "start_logits", "end_logits"])


# -- LabelShift ------------------------------------------------------------------------------


def test_label_shift_keeps_the_form():
    shift = LabelShift(1)
    preds = np.zeros((3, 5))
    got, labels = shift((preds, np.array([1, 2, 3])))
    assert got is preds and labels.tolist() == [0, 1, 2]
    assert shift((preds, [1, 2, 3]))[1] == [0, 1, 2]
    assert shift((preds, [(1, 2), (3, 4)]))[1] == [(0, 1), (2, 3)]
    assert shift((preds, 4))[1] == 3
    assert shift((preds, np.array([0], dtype=np.uint8)))[1].tolist() == [-1]
    assert LabelShift()((preds, [7]))[1] == [7]
    assert LabelShift(-1)((preds, [7]))[1] == [8]


def test_label_shift_faults():
    for wrong in (1.5, "1", True, None):
        with pytest.raises(ConfigError, match="whole number"):
            LabelShift(wrong)
    with pytest.raises(DataError, match="class numbers"):
        LabelShift(1)((None, np.array(["cat"])))


# -- SquadV1 ---------------------------------------------------------------------------------


class Example:
    def __init__(self, qas_id, words, answers=()):
        self.qas_id, self.doc_tokens, self.answers = qas_id, words, answers


class Feature:
    """One window: [CLS] q [SEP] words [SEP], a token a word."""

    def __init__(self, unique_id, example_index, words, first, best):
        self.unique_id, self.example_index = unique_id, example_index
        self.tokens = ["[CLS]", "q", "[SEP]", *(word.lower() for word in words), "[SEP]"]
        self.token_to_orig_map = {3 + at: first + at for at in range(len(words))}
        self.token_is_max_context = {3 + at: (first + at) in best for at in range(len(words))}


def two_questions():
    words = ["Alan", "met", "Bea", "in", "Rome", "on", "May", "Day"]
    examples = [Example("q0", words, ("Rome",)), Example("q1", words, ("May Day",))]
    features = [
        Feature(10, 0, words[:5], 0, {0, 1, 2, 3}),
        Feature(11, 0, words[3:], 3, {4, 5, 6, 7}),
        Feature(12, 1, words, 0, set(range(8))),
    ]
    return examples, features


def logits(length, **high):
    start, end = np.zeros(length), np.zeros(length)
    for name, value in high.items():
        (start if name[0] == "s" else end)[int(name[1:])] = value
    return start, end


def tutorial_results():
    return [
        RawResult(
            10, *(x.tolist() for x in logits(12, s7=5, e7=5))
        ),  # Rome, but better shown in 11
        RawResult(11, *(x.tolist() for x in logits(12, s4=4, e4=4))),  # Rome
        RawResult(
            12, *(x.tolist() for x in logits(12, s9=6, e10=6, e3=7))
        ),  # May Day; end before start
    ]


def test_the_tutorial_form():
    examples, features = two_questions()
    transform = SquadV1PostTransform(examples, features, 20, 30, True)
    label = [{"paragraphs": []}]
    preds, same = transform((tutorial_results(), label))
    assert preds == {"q0": "Rome", "q1": "May Day"} and same is label
    named = SquadV1(
        eval_examples=examples,
        eval_features=features,
        n_best_size=20,
        max_answer_length=1,
        do_lower_case=True,
    )
    assert named((tutorial_results(), label))[0]["q1"] == "Alan"  # the best single word


def test_windows_arrive_in_any_batches():
    examples, features = two_questions()
    results = tutorial_results()
    transform = SquadV1(examples, features)
    label = [{"paragraphs": []}]
    assert transform(([results[1]], label)) == ({}, label)  # q0 waits for its other window
    assert transform(([results[2]], label))[0] == {"q1": "May Day"}
    assert transform(([results[0]], label))[0] == {"q0": "Rome"}
    ids = np.array([10, 11, 12])
    starts = np.array([one.start_logits for one in results])
    ends = np.array([one.end_logits for one in results])
    whole = {"q0": "Rome", "q1": "May Day"}
    references = {"q0": ("Rome",), "q1": ("May Day",)}
    both = np.stack([starts, ends], axis=-1)
    for outputs, labels, wanted in (
        ([ids, starts, ends], label, (whole, label)),
        ([ids[:, None], starts, ends], label, (whole, label)),
        ([starts, ends], ids, (whole, references)),
        ([starts[::-1], ends[::-1]], ids[::-1], (whole, references)),
        ([starts, ends], label, (whole, label)),  # in order
        (both, ids, (whole, references)),
        ([both], label, (whole, label)),
    ):
        assert transform((outputs, labels)) == wanted
    assert transform((both[:1], ids[:1])) == (None, None)
    transform.reset()
    assert transform((both[1:2], ids[1:2])) == (None, None)  # the other one was forgotten
    assert transform((None, None)) == (None, None)


def test_squad_faults():
    examples, features = two_questions()
    transform = SquadV1(examples, features)
    start, end = logits(12)
    with pytest.raises(DataError, match="no window with the unique id 99"):
        transform(([RawResult(99, start, end)], None))
    with pytest.raises(DataError, match="question 'q0': the logits have NaN"):
        transform(([RawResult(10, start * np.nan, end)], None))
    with pytest.raises(DataError, match="5 start and 5 end logits for a window of 9 tokens"):
        transform(([RawResult(10, start[:5], end[:5])], None))
    with pytest.raises(DataError, match=r"expected \(n, length, 2\)"):
        transform((np.zeros((2, 5)), None))
    with pytest.raises(DataError, match="4 windows, but there are 3"):
        transform(([np.zeros((4, 12)), np.zeros((4, 12))], None))
    with pytest.raises(DataError, match="outputs of shapes"):
        transform(([np.zeros((4, 12)), np.zeros((3, 12))], None))
    with pytest.raises(ConfigError, match=r"max_answer_len.*label_file, vocab_file"):
        SquadV1("dev.json", "vocab.txt", max_answer_len=3)
    with pytest.raises(ConfigError, match="eval_examples, eval_features"):
        SquadV1()
    with pytest.raises(DataError):
        SquadV1("nowhere.json", "nowhere.txt")


def test_no_valid_span_is_an_empty_answer():
    examples, _ = two_questions()
    transform = SquadV1(examples[1:], [Feature(1, 0, examples[1].doc_tokens, 0, set())])
    assert transform(([RawResult(1, *logits(12))], None))[0] == {"q1": ""}


@pytest.mark.parametrize(
    ("predicted", "original", "wanted"),
    [
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("50", "(50%)", "50"),
        ("u . s", "U.S.", "U.S"),
        ("not there", "Something else", "Something else"),
        ("cafe", "Café bar", "Café"),
        ("[UNK]", "☃☃", "☃☃"),
        ("", "all of it", "all of it"),
    ],
)
def test_original_text(predicted, original, wanted):
    assert original_text(predicted, original, lower=True) == wanted


def plainly(examples, features, results, n_best, longest):
    """The published choice of a span: all pairs of the n best, sorted by their sum."""
    spans = {}
    for number, example in enumerate(examples):
        found = []
        for feature in features:
            if feature.example_index != number:
                continue
            start, end = results[feature.unique_id]
            order = [
                sorted(range(len(x)), key=lambda at, x=x: x[at], reverse=True)[:n_best]
                for x in (start, end)
            ]
            for first in order[0]:
                for last in order[1]:
                    if (
                        first in feature.token_to_orig_map
                        and last in feature.token_to_orig_map
                        and feature.token_is_max_context.get(first, False)
                        and first <= last < first + longest
                    ):
                        words = feature.token_to_orig_map
                        found.append((start[first] + end[last], words[first], words[last]))
        found.sort(key=lambda row: row[0], reverse=True)
        spans[example.qas_id] = found[0][1:] if found else None
    return spans


@pytest.fixture(scope="module")
def from_files(tmp_path_factory):
    if not SLICE.is_file() or not VOCABULARY.is_file():
        pytest.skip("no SQuAD slice, or no vocabulary: set LPOT_DATA")
    content = json.loads(SLICE.read_text(encoding="utf-8"))
    content["data"] = [{**content["data"][0], "paragraphs": content["data"][0]["paragraphs"][:12]}]
    file = tmp_path_factory.mktemp("squad") / "dev.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    options = {"max_seq_length": 128, "doc_stride": 48, "max_answer_length": 12}
    return SquadV1(str(file), str(VOCABULARY), 8, **options), content["data"]


def test_files_and_random_logits_equal_the_published_choice(from_files):
    transform, articles = from_files
    transform.reset()
    examples, features = transform.reader.examples, transform.reader.features
    assert len(features) > len(examples) > 20  # some paragraphs need several windows
    rng = np.random.default_rng(0)
    starts = np.round(rng.normal(size=(len(features), 128)) * 3, 1)  # rounded: ties
    ends = np.round(rng.normal(size=(len(features), 128)) * 3, 1)
    results = {one.unique_id: (s, e) for one, s, e in zip(features, starts, ends, strict=True)}
    spans = plainly(examples, features, results, 8, 12)
    got = {}
    for at in range(0, len(features), 7):
        ids = np.array([one.unique_id for one in features[at : at + 7]])
        got |= transform(([ids, starts[at : at + 7], ends[at : at + 7]], articles))[0]
    assert got.keys() == spans.keys()
    for example in examples:
        span = spans[example.qas_id]
        if span is None:
            assert got[example.qas_id] == ""
        else:
            words = " ".join(example.doc_tokens[span[0] : span[1] + 1])
            assert got[example.qas_id] and got[example.qas_id] in words


def test_logits_at_the_answers_give_the_answers(from_files):
    """Right logits in every window that shows the answer: the texts must come back."""
    transform, articles = from_files
    transform.reset()
    wanted = {}
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answer = question["answers"][0]
                before = paragraph["context"][: answer["answer_start"]]
                first = len(before.split()) - (0 if before[-1:].isspace() or not before else 1)
                span = paragraph["context"][: answer["answer_start"] + len(answer["text"])]
                wanted[question["id"]] = (first, len(span.split()) - 1, answer["text"])
    features = transform.reader.features
    starts, ends = np.zeros((len(features), 128)), np.zeros((len(features), 128))
    shown = set()  # answers that some window shows, and that are not too long
    for row, feature in enumerate(features):
        question = transform.reader.examples[feature.example_index].qas_id
        first, last, _ = wanted[question]
        places = feature.token_to_orig_map
        begin = [at for at, word in places.items() if word == first]
        finish = [at for at, word in places.items() if word == last]
        if begin and finish:
            starts[row, begin[0]] = ends[row, finish[-1]] = 9.0
            if feature.token_is_max_context[begin[0]] and finish[-1] - begin[0] < 12:
                shown.add(question)
    preds, references = transform(([starts, ends], np.array([f.unique_id for f in features])))
    assert references.keys() == preds.keys() == wanted.keys()
    assert len(shown) > 0.9 * len(wanted)
    for question in shown:
        assert wanted[question][2] in preds[question]


# -- boxes -----------------------------------------------------------------------------------


def test_decode_undoes_encode():
    rng = np.random.default_rng(1)
    anchors = np.concatenate([rng.random((50, 2)), rng.random((50, 2)) + 0.05], axis=1)
    low = rng.random((50, 2))
    boxes = np.concatenate([low, low + rng.random((50, 2)) + 0.01], axis=1)
    size = boxes[:, 2:] - boxes[:, :2]
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    deltas = np.concatenate(
        [(centre - anchors[:, :2]) / anchors[:, 2:] * 10, np.log(size / anchors[:, 2:]) * 5], axis=1
    )
    np.testing.assert_allclose(decode_boxes(deltas, anchors), boxes, atol=1e-12)
    assert np.isfinite(decode_boxes(np.full((1, 4), 1e6), anchors[:1])).all()


def overlap(one, other):
    high, wide = (min(one[at + 2], other[at + 2]) - max(one[at], other[at]) for at in (0, 1))
    both = max(high, 0) * max(wide, 0)
    area = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return both / (sum(area) - both)


@pytest.mark.parametrize("threshold", [0.3, 0.6])
def test_nms_equals_its_definition(threshold):
    rng = np.random.default_rng(2)
    low = rng.random((120, 2))
    boxes = np.concatenate([low, low + rng.random((120, 2)) * 0.5 + 0.01], axis=1)
    scores = np.round(rng.random(120), 2)
    kept = []
    for at in sorted(range(120), key=lambda at: (-scores[at], at)):
        if all(overlap(boxes[at], boxes[other]) <= threshold for other in kept):
            kept.append(at)
    assert nms(boxes, scores, threshold).tolist() == kept[:100]
    assert nms(boxes, scores, threshold, most=5).tolist() == kept[:5]
    assert nms(boxes[:0], scores[:0]).tolist() == []


def test_boxes_come_out_as_the_metric_takes_them():
    anchors = np.array([[0.25, 0.25, 0.5, 0.5], [0.25, 0.26, 0.5, 0.5], [0.75, 0.75, 0.5, 0.5]])
    scores = np.array([[[0.9, 0.05], [0.8, 0.3], [0.1, 0.7]]])
    step = DetectionBoxes(anchors, max_detections=4)
    outputs, labels = step(([np.zeros((1, 3, 4)), scores], "labels"))
    count, boxes, score, kind = outputs
    assert labels == "labels" and count.tolist() == [4.0] and boxes.shape == (1, 4, 4)
    np.testing.assert_allclose(score[0], [0.9, 0.7, 0.3, 0.1])
    assert kind[0].tolist() == [1, 2, 2, 1]
    np.testing.assert_allclose(boxes[0, 1], [0.5, 0.5, 1.0, 1.0])
    crossed = DetectionBoxes(anchors[:, [1, 0, 3, 2]], box_order="xyxy", max_detections=4)
    other = crossed(([np.zeros((1, 3, 1, 4)), scores], None))[0]
    for one, two in zip(outputs, other, strict=True):
        np.testing.assert_allclose(one, two)


@pytest.mark.parametrize("kind", ["sigmoid", "softmax"])
def test_activation_and_background(kind):
    raw = np.array([[[0.3, 2.0, -1.0], [-1000.0, 1000.0, 0.0]]])
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3.0]]])
    if kind == "sigmoid":
        wanted = 1 / (1 + np.exp(-raw[0, 0]))
    else:
        wanted = np.exp(raw[0, 0]) / np.exp(raw[0, 0]).sum()
    step = DetectionBoxes(activation=kind, background=True, first_class=1)
    (count, _, score, kinds), _ = step(([boxes, raw], None))
    rows = set(zip(np.round(score[0], 5).tolist(), kinds[0].tolist(), strict=True))
    assert (np.float32(wanted[1]).round(5).item(), 1.0) in rows
    assert (np.float32(wanted[2]).round(5).item(), 2.0) in rows
    assert np.isfinite(score).all() and count[0] in (3, 4)


def test_box_faults(tmp_path):
    with pytest.raises(ConfigError, match="sigmoid"):
        DetectionBoxes(activation="relu")
    with pytest.raises(ConfigError, match="xyxy"):
        DetectionBoxes(box_order="xywh")
    with pytest.raises(DataError, match="can't be read"):
        DetectionBoxes(anchors=str(tmp_path / "none.npy"))
    with pytest.raises(DataError, match=r"expected \(anchors, 4\)"):
        DetectionBoxes(anchors=np.zeros((4, 3)))
    step = DetectionBoxes(anchors=np.zeros((4, 4)))
    with pytest.raises(DataError, match="3 outputs"):
        step(([1, 2, 3], None))
    with pytest.raises(DataError, match="3 boxes for 4 anchors"):
        step(([np.zeros((1, 3, 4)), np.zeros((1, 3, 2))], None))
    with pytest.raises(DataError, match=r"shape \(1, 3, 4\) and scores of shape \(1, 2, 2\)"):
        step(([np.zeros((1, 3, 4)), np.zeros((1, 2, 2))], None))
    bad = np.zeros((2, 4, 2))
    bad[1, 0, 0] = np.nan
    with pytest.raises(DataError, match="NaN in the outputs of sample 1"):
        step(([np.zeros((2, 4, 4)), bad], None))
    np.save(tmp_path / "a.npy", np.ones((4, 4)))
    assert DetectionBoxes(anchors=str(tmp_path / "a.npy")).anchors.shape == (4, 4)


@pytest.mark.slow
def test_boxes_of_a_real_detector_equal_those_of_its_graph():
    file = DATA / "ssdlite_mobilenet_v2_coco" / "frozen_inference_graph.pb"
    images = sorted((DATA / "coco2017-slice" / "val2017").glob("*.jpg"))[:6]
    if not file.is_file() or not images:
        pytest.skip("no detector, or no images: set LPOT_DATA")
    tf = pytest.importorskip("tensorflow").compat.v1
    image_module = pytest.importorskip("PIL.Image")
    graph = tf.Graph()
    with graph.as_default():
        definition = tf.GraphDef()
        definition.ParseFromString(file.read_bytes())
        tf.import_graph_def(definition, name="")
    names = ["detection_boxes", "detection_scores", "detection_classes", "num_detections"]
    wanted = [f"{name}:0" for name in names]
    step = DetectionBoxes(iou_threshold=0.6, score_threshold=1e-4, clip=True)
    with tf.Session(graph=graph) as session:
        for path in images:
            pixels = np.asarray(image_module.open(path).convert("RGB"))[None]
            heads = ["Postprocessor/ExpandDims_1:0", "Postprocessor/Slice:0"]
            *raw, boxes, scores, classes, count = session.run(
                heads + wanted, {"image_tensor:0": pixels}
            )
            (own_count, own_boxes, own_scores, own_classes), _ = step((raw, None))
            assert own_count.tolist() == np.ravel(count).tolist()
            np.testing.assert_allclose(own_scores, scores, atol=1e-6)
            strong = scores[0] > 0.05  # below, many scores are equal to the last digit
            np.testing.assert_allclose(own_boxes[0, strong], boxes[0, strong], atol=1e-5)
            assert own_classes[0, strong].tolist() == classes[0, strong].tolist()


# -- names -----------------------------------------------------------------------------------


def test_steps_by_name_object_class_and_record():
    class Double:
        def __init__(self, by=2):
            self.by = by

        def __call__(self, sample):
            return sample[0] * self.by, sample[1]

    class Record:
        postprocess_cls, name, kwargs = Double, "user_postprocess", {"by": 3}

    one = np.ones(2)
    assert as_postprocess({"LabelShift": 1})((one, [5]))[1] == [4]
    assert as_postprocess({"LabelShift": {"label_shift": 2}})((one, [5]))[1] == [3]
    assert as_postprocess(Double)((one, 0))[0].tolist() == [2, 2]
    assert as_postprocess(Double(4))((one, 0))[0].tolist() == [4, 4]
    assert as_postprocess(Record())((one, 0))[0].tolist() == [3, 3]
    both = as_postprocess([Double, {"LabelShift": 1}])
    assert both((one, [5]))[1] == [4] and both((one, [5]))[0].tolist() == [2, 2]
    assert as_postprocess(both) is both
    with pytest.raises(
        ConfigError, match=r"postprocess\.transform\.LabelShit.*did you mean 'LabelShift'"
    ):
        as_postprocess({"LabelShit": 1})
    with pytest.raises(ConfigError, match="label_shift"):
        as_postprocess({"LabelShift": {"shift": 1}})
    with pytest.raises(ConfigError, match="can't be used"):
        as_postprocess(3)


def test_a_chain_resets_its_steps():
    examples, features = two_questions()
    squad = SquadV1(examples, features)
    chain = as_postprocess([squad, LabelShift(0)])
    squad(([tutorial_results()[0]], None))
    assert squad._pending
    chain.reset()
    assert not squad._pending


def test_a_user_transform_by_name():
    from lpot.data.transforms import TRANSFORMS, transform_registry

    @transform_registry("Mine", process="postprocess", framework="pytorch")
    class Mine:
        def __call__(self, sample):
            return "mine", sample[1]

    try:
        assert as_postprocess({"Mine": None})(("x", 1)) == ("mine", 1)
    finally:
        TRANSFORMS.remove("Mine")
