"""The errors that a user can meet. `str(error)` is the whole message: the value, what is allowed, and the remedy."""


class VideoInferError(ValueError):
    """Base of every user-facing error."""


class RequestError(VideoInferError):
    """The request itself is wrong: an unknown key, a value outside the model's range, files that contradict."""


class ModelError(VideoInferError):
    """The model cannot be used: not found, incomplete, unsupported, not licensed, or too big for the device."""


class MediaError(VideoInferError):
    """A picture, clip or sound cannot be read, or an output file cannot be written."""


class GenerationError(VideoInferError):
    """The model ran, and what it made is not usable (NaN, Inf, an all-black clip), or a stage failed."""


class OutOfMemory(GenerationError):
    """The device has not enough memory for a stage of this request."""


class DiskFull(MediaError):
    """An output file cannot be written, because there is no room for it."""


class NameTaken(MediaError):
    """An output file of that name exists, or another process is writing it."""


class CacheWarning(UserWarning):
    """A step cache did not do what it is there for."""


class Cancelled(Exception):
    """Raised inside the denoise loop when the caller's cancel event is set. Not a failure of the request."""
