# Forwards to scripts/, where everything is.
default:
    @just --list

setup *args:
    scripts/setup {{args}}

demo:
    scripts/demo

# a suite's name, or nothing for all of them; --full first for the whole size
test *args:
    scripts/test {{args}}
