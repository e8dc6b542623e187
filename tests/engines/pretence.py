"""Modules that are imported on the way to what is wanted, and cannot be had without a device.

In their place stands something that answers to any name. Nothing here ever computes with it.
"""

import contextlib
import importlib.abc
import importlib.machinery
import sys
import unittest.mock


class _AnyModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = unittest.mock.MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__version__ = [], spec, "3.5.0"
        return module

    def exec_module(self, module):
        pass


def install(names):
    """From now on each of these packages, and all below it, can be imported."""
    sys.meta_path.insert(0, _AnyModule(names))


@contextlib.contextmanager
def while_importing(names):
    """The same for as long as it lasts. What was imported from them stays."""
    install(names)
    finder = sys.meta_path[0]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if name.split(".")[0] in names:
                del sys.modules[name]


class Pretend:
    """Another object, but for the attributes given."""

    def __init__(self, original, **attributes):
        self.__dict__.update(attributes, _original=original)

    def __getattr__(self, name):
        return getattr(self._original, name)
