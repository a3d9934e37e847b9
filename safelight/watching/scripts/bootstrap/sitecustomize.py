"""Runs in python before the script of `safelight run`: undoes what brought it here, and waits for torch.

Imports only what python itself has imported by now, so that modules of the script with such names are still found.
"""

import atexit
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))  # of the package
NO_TRAINING_TEXT = "no training was seen: the script ended before an optimizer of torch made an update."


class Waiting:
    """From the start of python to its end: what is known of the training, once torch is imported."""

    def __init__(self, options):
        self.options, self.process, self.session = options, os.getpid(), None
        self.is_quiet, self.is_check = '"quiet": true' in options, '"handover": null' not in options
        self.is_member = '"is_member": true' in options

    def begin(self):
        """The script has imported torch."""
        sys.meta_path.append(FallbackFinder())
        try:
            if self.is_member:
                from safelight.watching.scripts.member_session import MemberSession

                self.session = MemberSession()
            else:
                from safelight.watching.scripts.session import ScriptSession

                self.session = ScriptSession(self.options, say)
        except Exception as error:  # whatever is wrong with us, the script runs
            say(f"this script cannot be watched ({type(error).__name__}: {error}).")
            self.is_quiet = True
            if self.is_check:
                sys.exit(3)  # nothing would ever stop it
        finally:
            del sys.meta_path[-1]

    def end(self):
        if os.getpid() != self.process:  # a fork that ends as python does
            return
        if self.session is not None:
            self.session.end()
        elif not self.is_quiet:
            say(NO_TRAINING_TEXT)


class TorchFinder:
    """Finds torch where python finds it, and notes when it has been imported."""

    def __init__(self, waiting):
        self.waiting = waiting

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        others = [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]
        spec = next((spec for each in others if (spec := each.find_spec(name, path, target)) is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = TorchLoader(spec.loader, self)  # pyright: ignore[reportAttributeAccessIssue]
        return spec


class TorchLoader:
    """The loader of torch, which does as before."""

    def __init__(self, loader, finder):
        self.loader, self.finder = loader, finder

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
            self.finder.waiting.begin()


# Python leaves frames of its import system out of tracebacks, by this name: a torch that fails reads the same.
TorchLoader.exec_module.__code__ = TorchLoader.exec_module.__code__.replace(
    co_filename="<frozen importlib._bootstrap_external>"
)


class FallbackFinder:
    """Finds this package where the script's own path does not: a checkout that `python -m` was started in."""

    def find_spec(self, name, path=None, target=None):
        if name != "safelight":
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, os.path.join(HOME, "__init__.py"), submodule_search_locations=[HOME])


def say(text):
    """On the stderr that python was started with, past whatever the script has put in its place. A pipe that nobody
    reads costs the line, nothing else: python would leave with another exit code if the line stayed in its buffer."""
    if sys.__stderr__ is None or sys.__stderr__.closed:
        return
    try:
        sys.__stderr__.flush()
        line = text if text.startswith("Safelight") else f"Safelight: {text}"
        os.write(sys.__stderr__.fileno(), f"{line}\n".encode(errors="backslashreplace"))
    except (OSError, ValueError):
        pass


def undo():
    """The environment and the path as they would be without us, for the script and for what it starts."""
    options, before = os.environ.pop("SAFELIGHT_RUN"), os.environ.pop("SAFELIGHT_PYTHONPATH", None)
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
    sys.path[:] = [each for each in sys.path if each != HERE]
    sys.path_importer_cache.pop(HERE, None)
    del sys.modules["sitecustomize"]
    return options


if "SAFELIGHT_RUN" in os.environ:
    _waiting = Waiting(undo())
    sys.meta_path.insert(0, TorchFinder(_waiting))
    atexit.register(_waiting.end)
    # The sitecustomize that python would have found. Where there is none, `site` expects exactly this error.
    import sitecustomize  # noqa: F401
