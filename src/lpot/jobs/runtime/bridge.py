"""A model of any framework in another runtime: as an ONNX file that the runtime's backend tunes.

The user's evaluation goes on seeing what it expects: an object of its framework that computes in
that runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpot.backends import detect, get_backend, get_runtime
from lpot.config.rules import model_spec
from lpot.core.backend import Backend, Presenter, Presenting
from lpot.core.batch import Reader
from lpot.core.errors import ConfigError, DataError, LpotError, UnsupportedModel
from lpot.core.files.workspace import default_folder
from lpot.core.framework import family
from lpot.core.loader import Loader
from lpot.jobs.settings import change_config, with_name
from lpot.jobs.tune.evaluation import calibration_loader
from lpot.jobs.tune.request import Request

PLACE = "model.runtime"
NATIVE, AUTO = "native", "auto"
OWN: Mapping[str, str] = {"onnx": "onnxruntime"}  # framework → what its own runtime is called


def framework_of(request: Request) -> str:
    """Whatever door it came by."""
    if request.backend is not None:
        return request.backend.name
    return family(request.config.model.framework or detect(request.model))


def in_runtime(request: Request) -> Request:
    """The request for the runtime that it names; as it is where that is the framework's own."""
    name = request.config.model.runtime
    if name == NATIVE:
        return request
    framework = framework_of(request)
    if name == OWN.get(framework):
        return request
    if request.config.quantization.approach == "weight_only":
        raise ConfigError(
            "weights in few bits are run by ONNX Runtime (onnxruntime-genai): leave it out", PLACE
        )
    backend = get_runtime(name)
    if framework == "onnx":
        return replace(request, backend=backend)
    if framework == "mxnet":
        raise ConfigError(
            "a model of MXNet 1.9 runs in MXNet alone, whose exporter to ONNX needs packages that "
            "are no longer there: leave it out, or give the model in another framework",
            PLACE,
        )
    return _exported(request, get_backend(request.backend or framework), backend)


def _exported(request: Request, home: Backend[Any], backend: Backend[Any]) -> Request:
    """The FP32 model as ONNX in the workspace, and its own kind of object for the evaluation."""
    config = with_name(request.config, request.model)
    given = calibration_loader(request)
    if given is None:
        raise DataError(
            f"runtime {config.model.runtime} needs the model as ONNX, and writing it runs it once: "
            f"give calibration data ({request.door.calib})"
        )
    loader = Loader(given)
    model = home.load(request.model, replace(model_spec(config), sample=loader.peek))
    if not isinstance(home, Presenting):
        raise UnsupportedModel(f"backend {home.name} can't hand its models to other runtimes")
    reader = Reader(model.input_names, model.tries())
    batch = reader(loader.peek()).inputs
    request.listener.phase("exporting the model to ONNX")
    # By content: another model's run in the same folder must not write over it.
    path = folder_of(request, home.name) / "fp32" / f"{model.fingerprint()[:8]}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        model.export_onnx(path, batch)
        presenter = home.presenter(model, batch, path)
    except LpotError as error:
        raise UnsupportedModel(
            f"runtime {config.model.runtime} runs ONNX files, and this model can't be written as "
            f"one ({error}): leave `runtime` out to tune it in {home.name}"
        ) from error
    model.close()
    remark = (
        f"the model was exported to ONNX ({path}) and is tuned for {config.model.runtime}; the "
        "evaluation gets an object like the model given, which computes there"
    )
    backend.present = presenter

    def fed(loader: Any) -> Any:
        return loader if loader is None or callable(loader) else Fed(loader, reader, presenter)

    # Rules for ops speak of the file's names from here on, whatever the framework called them.
    changes = {"model.framework": None, "model.inputs": None, "model.outputs": None}
    return replace(
        request,
        config=change_config(config, {"model.name": config.model.name, **changes}),
        model=path,
        backend=backend,
        remarks=(*request.remarks, remark),
        calib=Fed(loader, reader, presenter),
        eval_loader=fed(request.eval_loader),
        held_out=fed(request.held_out),
    )


def folder_of(request: Request, framework: str) -> Path:
    """Where what is made before the plan is kept: here, if the workspace is at a URL."""
    config = with_name(request.config, request.model)
    given = request.workspace or config.tuning.workspace.path
    is_here = given is not None and "://" not in str(given)
    return Path(str(given)) if is_here else default_folder(framework, config.model.name)


class Fed:
    """A loader's batches as the ONNX file takes them: by the names of its inputs, and labels."""

    def __init__(self, loader: Any, reader: Reader, presenter: Presenter) -> None:
        self._loader = loader if isinstance(loader, Loader) else Loader(loader)
        self._reader, self._presenter = reader, presenter
        self.batch_size = self._loader.batch_size

    def __iter__(self) -> Iterator[Any]:
        for raw in self._loader.open():
            batch = self._reader(raw)
            feeds = self._presenter.feeds(batch.inputs)
            yield feeds if batch.labels is None else (feeds, batch.labels)

    def __len__(self) -> int:
        if self._loader.length is None:
            raise TypeError("the loader does not tell its length")
        return self._loader.length
