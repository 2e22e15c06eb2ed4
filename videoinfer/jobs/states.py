"""The states of a job, and which may follow which.

    queued -> encoding -> encoded -> denoising -> denoised -> decoding -> done
                                                                     failed      the job itself cannot be made
                                                                     set_aside   it harmed its workers too often
                                                                     cancelled   on request, `cancelling` until then

A job whose worker or runner is lost goes back to `queued`, or to `encoded` when its conditioning is on disk.
"""

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    ENCODING = "encoding"
    ENCODED = "encoded"
    DENOISING = "denoising"
    DENOISED = "denoised"
    DECODING = "decoding"
    DONE = "done"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    SET_ASIDE = "set_aside"


WAITING = (State.QUEUED, State.ENCODED)
ACTIVE = (State.ENCODING, State.DENOISING, State.DENOISED, State.DECODING, State.CANCELLING)  # held under a lease
FINAL = (State.DONE, State.FAILED, State.CANCELLED, State.SET_ASIDE)
