"""The gradient noise scale: how large a batch still teaches about as much per sample.

The squared norm of the gradient over B samples is |G|² + tr(Σ)/B on average, with G the true gradient and Σ the
covariance over single samples. Two batches of different size give both unknowns, and B_noise = tr(Σ)/|G|² is what the
policy weighs batches by (McCandlish et al. 2018, appendix A.1). Each estimate is rough, so both are averaged over many
steps before they are divided.
"""

import torch

# Ours: an average over about 20 measurements, which is some 400 steps of training.
_NEW = 0.05
# Norms are taken over every n-th coordinate where a model has more than these: the ratio stays the same, and the cost
# of a measurement stops growing with the model. Ours: a million of them is far beyond what chance needs to average out.
_MOST_COORDINATES = 1 << 20


class NoiseScale:
    """Running averages of |G|² and tr(Σ). An average over few measurements is a plain mean."""

    def __init__(self, count: int = 0, sqr: float = 0.0, var: float = 0.0) -> None:
        self.count, self.sqr, self.var = count, sqr, var

    def add(self, small_sqr: float, small: float, big_sqr: float, big: float) -> None:
        """Squared norms of two gradients, over `small` and over `big` samples; `small` may be part of `big`."""
        self.count += 1
        new = max(1 / self.count, _NEW)
        sqr = (big * big_sqr - small * small_sqr) / (big - small)
        var = (small_sqr - big_sqr) / (1 / small - 1 / big)
        self.sqr += (sqr - self.sqr) * new
        self.var += (var - self.var) * new

    def metrics(self, base_batch: int) -> dict[str, float]:
        """As the policy reads them: `grad_sqr` is |G|², `grad_var` the variance of a gradient over the base batch.

        Nothing as long as chance outweighs what was measured, for then an average may be negative.
        """
        if self.count == 0 or self.sqr <= 0.0 or self.var < 0.0:
            return {}
        return {"grad_sqr": self.sqr, "grad_var": self.var / base_batch}


class Thinning:
    """The same few coordinates of any gradient of these parameters, as one vector."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = parameters
        sizes = [parameter.numel() for parameter in parameters]
        self._stride = max(-(-sum(sizes) // _MOST_COORDINATES), 1)
        self._offsets = [-sum(sizes[:at]) % self._stride for at in range(len(sizes))]

    def of(self, at: int) -> torch.Tensor:
        """Those of parameter `at`'s gradient as it stands, copied."""
        grad = self._parameters[at].grad
        if grad is None:
            grad = torch.zeros_like(self._parameters[at])
        return grad.detach().flatten()[self._offsets[at] :: self._stride].float().clone()

    def whole(self) -> torch.Tensor:
        """Those of all parameters' gradients."""
        return torch.cat([self.of(at) for at in range(len(self._parameters))])
