//! What must not compile: see `tests/`.
