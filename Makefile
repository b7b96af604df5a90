# The commands of the README. The build itself is CMake's: see CMakePresets.json.

JOBS ?= $(shell nproc)
# DEPS=skip leaves the system's packages alone.
DEPS ?= install

.PHONY: help install-deps build demo test docs package soak check format clean

help:
	@echo "make demo          install what is missing, build what the demo runs, and train on"
	@echo "                   Fashion-MNIST with 2 workers"
	@echo "make test          install what is missing, build everything, and run the tests"
	@echo "make build         build everything into build/"
	@echo "make docs          the API reference, build/docs/index.html"
	@echo "make package       Debian packages tutti and libtutti-dev in build/packages"
	@echo "make check         check format, layers and documents"
	@echo "make format        format every source"
	@echo "make soak          run what is too long for every change; the result is docs/soak.md"
	@echo "make install-deps  install the Debian packages that are missing"
	@echo "make clean         remove every build folder"

install-deps:
ifneq ($(DEPS),skip)
	@scripts/install-deps
endif

build: install-deps
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS)

# Only what the demo runs: the library, tutti and fashion_mnist. make build reuses all of it.
demo:
ifneq ($(DEPS),skip)
	@scripts/install-deps --demo
endif
	@echo "configuring the build of the demo"
	@cmake --preset demo > /dev/null
	@cmake --build --preset demo -j $(JOBS)
	@scripts/demo build/bin

test: build
ifneq ($(DEPS),skip)
	@scripts/install-python
endif
	@ctest --preset release -j $(JOBS)

docs: install-deps
	@cmake --preset release > /dev/null
	@cmake --build --preset release --target docs
	@echo "make docs: build/docs/index.html"

package: build
	@cpack --config build/CPackConfig.cmake -B build/packages

soak: install-deps
ifneq ($(DEPS),skip)
	@scripts/install-deps --soak
endif
	@scripts/soak -j $(JOBS)

check: install-deps
	@scripts/check-format
	@scripts/check-layers
	@scripts/check-readme --static

format: install-deps
	@scripts/check-format --fix

clean:
	rm -rf build build-*/
