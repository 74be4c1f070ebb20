"""Package metadata comes from settings.ini, which nbdev reads too."""

import shutil
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

config = ConfigParser(delimiters=["="])
config.read("settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]


class BuildWithData(build_py):
    """A built package carries the numbers in data/, which a checkout reads where they are."""

    def run(self):
        super().run()
        if not self.editable_mode:
            shutil.copytree("data", Path(self.build_lib) / cfg["lib_name"] / "resources" / "data", dirs_exist_ok=True)


setup(
    cmdclass={"build_py": BuildWithData},
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    keywords=cfg["keywords"],
    author=cfg["author"],
    license="Apache-2.0",
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Natural Language :: English",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=" + cfg["min_python"],
    packages=find_packages(include=[cfg["lib_name"], cfg["lib_name"] + ".*"]),
    package_data={cfg["lib_name"]: ["resources/**/*", "py.typed"]},
    install_requires=cfg["requirements"].split(),
    extras_require={
        extra: cfg[f"{extra}_requirements"].split() for extra in ("dev", "bench", "meteor", "chinese", "docs", "peft", "harness", "leace")
    },
    entry_points={"console_scripts": cfg["console_scripts"].split()},
    zip_safe=False,
)
