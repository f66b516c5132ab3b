"""A teacher that is asked about mirror images, too."""

import torch
from torch import nn

from lpot.backends.torch.prune.answers import Answers, last_layer, same_last_layer
from lpot.backends.torch.prune.views import PICTURES, Mirrored, mirror


class Sides(nn.Module):
    """Scores by what is left and right of the middle; or by both alike."""

    def __init__(self, alike: bool) -> None:
        super().__init__()
        self.alike = alike

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x[..., : x.shape[-1] // 2].mean((1, 2, 3)), x.mean((1, 2, 3))
        scores = [right, -right] if self.alike else [left, right - left]
        return 1e4 * torch.stack(scores, 1)  # it is sure of all that it sees


def pictures(count: int = PICTURES, side: int = 16) -> torch.Tensor:
    return torch.randn((count, 3, side, side), generator=torch.Generator().manual_seed(0))


def test_a_mirror_image_counts_where_it_is_the_same_thing() -> None:
    x = pictures()
    asked = Mirrored(Answers(Sides(alike=True)))
    assert not asked.applies  # nothing has been seen
    asked.look(((x,), {}))
    assert asked.applies
    torch.manual_seed(3)
    other = mirror(((x,), {}))
    assert other is not None
    torch.manual_seed(3)
    (found,) = asked(((x,), {})).outputs
    net = Sides(alike=True)
    assert torch.allclose(found, (net(x) + net(other[0][0])) / 2)


def test_what_has_another_meaning_in_the_mirror_is_left_alone() -> None:
    x = pictures()
    asked = Mirrored(Answers(Sides(alike=False)))
    asked.look(((x,), {}))
    assert not asked.applies
    assert torch.equal(asked(((x,), {})).outputs[0], Sides(alike=False)(x))


def test_pictures_that_the_teacher_does_not_know_do_not_count() -> None:
    """Parts of photographs, say, that are trained on among others."""

    class Unsure(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            known = x[:, :1].amax((1, 2, 3)) > 50
            alike, other = Sides(alike=True)(x), Sides(alike=False)(x)
            return torch.where(known[:, None], alike, 1e-4 * other)

    x = pictures(2 * PICTURES)
    asked = Mirrored(Answers(Unsure()))
    asked.look(((x,), {}))
    assert not asked.applies  # it knows none of them
    x[::4, 0] += 100
    asked.look(((x,), {}))
    assert asked.applies


def test_outputs_that_are_no_scores_are_left_alone() -> None:
    asked = Mirrored(Answers(nn.Conv2d(3, 2, 1)))
    asked.look(((pictures(4),), {}))
    assert not asked.applies


def test_only_pictures_have_mirror_images() -> None:
    assert mirror(((torch.ones(2, 5),), {})) is None
    assert mirror(((torch.ones(2, 3, 4, 4, dtype=torch.long),), {})) is None
    assert mirror(((pictures(2), pictures(2)), {})) is None


def test_small_pictures_are_not_shifted() -> None:
    x = pictures(2, 8)
    found = mirror(((), {"image": x}))
    assert found is not None
    assert torch.equal(found[1]["image"], x.flip(-1))


def test_the_last_run_is_that_of_the_picture_itself() -> None:
    """Its features are compared with the student's."""
    x, seen = pictures(), []
    net = Sides(alike=True)
    net.register_forward_hook(lambda part, args, output: seen.append(args[0]))
    asked = Mirrored(Answers(net))
    asked.look(((x,), {}))
    asked(((x,), {}))
    assert torch.equal(seen[-1], x) and not torch.equal(seen[-2], x)


class Ends(nn.Module):
    def __init__(self, width: int, softmax: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.softmax = nn.Linear(4, width), nn.Linear(width, 3), softmax

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.last(torch.relu(self.first(x)))
        return made.softmax(1) if self.softmax else made


def test_the_last_layer_is_the_one_that_gives_the_outputs() -> None:
    call = (torch.ones(2, 4),), {}
    assert last_layer(Ends(5), call) == "last"
    assert last_layer(Ends(5, softmax=True), call) is None
    assert last_layer(nn.Sequential(nn.Conv2d(3, 2, 1)), ((pictures(2),), {})) is None
    assert same_last_layer(Ends(5), Ends(5), call) == "last"
    assert same_last_layer(Ends(4), Ends(5), call) is None  # pruned: it gets less


def test_an_answer_has_what_the_last_layer_got() -> None:
    net, x = Ends(5), torch.ones(2, 4)
    answers = Answers(net)
    answers.watch("last")
    found = answers(((x,), {}))
    assert found.last is not None
    assert torch.equal(found.last, torch.relu(net.first(x)))
    assert torch.equal(found.outputs[0], net(x))
    answers.close()
    assert answers(((x,), {})).last is None
