"""Provides studies on a simulated program."""

from ..study.conftest import tuning

__all__ = ["tuning"]
