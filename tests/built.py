"""Environments of requirements, as a build resolves and installs them, for tests and benchmarks."""

from envpack.conda.settings import read_conda_settings
from envpack.environment.build import environment_of as environment_by_options
from envpack.environment.from_prefix import environment_from_prefix
from envpack.lock.resolve import LOCAL_CHANNEL, LockOptions
from envpack.requirements.target import Target
from envpack.settings.pythons import check_minor
from envpack.support.entry_locks import ingredients_in_use
from envpack.support.folders import cache_root
from envpack.support.platforms import host_platform
from envpack.support.progress import NoProgress

GLIBC = "2.35"  # of the official images that are based on Ubuntu 22.04


def build_environment(
    requirements,
    *,
    python,
    channels=(LOCAL_CHANNEL,),
    cache=None,
    progress=None,
    glibc=GLIBC,
    platform="",
    sources=(),
    python_preference="system",
):
    """The environment for requirements, as an unchanged cache has resolved them before."""
    check_minor(python)
    options = _options(cache, channels, sources=tuple(sources), python_preference=python_preference)
    progress, target = progress or NoProgress(), Target(platform or host_platform(), python, glibc)
    with ingredients_in_use(options.cache):
        lock = options.resolve_once(requirements, target, progress)
        return environment_by_options(lock, options, progress, variables=requirements.download_variables)


def environment_of(lock, *, cache=None, strip=False):
    """The environment of a lock."""
    return environment_by_options(lock, _options(cache, ()), NoProgress(), strip=strip)


def copied_environment(prefix, *, glibc=GLIBC, **how):
    """The copy of an environment that is in a folder."""
    return environment_from_prefix(prefix, glibc=glibc, **how)


def _options(cache, channels, **how):
    root = (cache or cache_root()).absolute()
    return LockOptions(channels=tuple(channels), settings=read_conda_settings(), cache=root, **how)
