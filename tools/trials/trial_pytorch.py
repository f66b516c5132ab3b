"""A small net on the embedded digits: trained, tuned, saved and loaded again."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import lpot
from lpot.demo import demo_data

data = demo_data()
images, labels = torch.tensor(data.calib_images), torch.tensor(data.calib_labels).long()
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(16 * 4 * 4, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(net.parameters(), 5e-3)
for _ in range(4):
    for x, y in zip(images.split(50), labels.split(50), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
net.eval()


def accuracy(model):
    with torch.no_grad():
        found = model(torch.tensor(data.images)).argmax(1).numpy()
    return float((found == data.labels).mean())


with tempfile.TemporaryDirectory() as name:
    folder = Path(name, "int8")
    result = lpot.tune(
        net, [images[:50]], accuracy, 0.01, workspace=Path(name, "ws"), output=folder
    )
    assert result.met, result
    assert accuracy(lpot.load(folder, module=net).native) == result.accuracy
print(result)
