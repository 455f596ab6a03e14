# make demo and make test do all the set-up that they need; see README.md.
.PHONY: setup build demo test check clean

SETUP = scripts/setup.sh && eval "$$(scripts/setup.sh env)"

setup:
	@scripts/setup.sh

build:
	@$(SETUP) && cmake --preset release >/dev/null && cmake --build --preset release --target inferscale

demo: build
	@eval "$$(scripts/setup.sh env)" && scripts/demo.sh

test:
	@scripts/test.sh

check:
	@scripts/check.sh

clean:
	rm -rf build
