//! The acceptance scenarios of the contract, on every backend.
