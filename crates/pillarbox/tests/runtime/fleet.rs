//! Many stores under one runtime: turns, budgets, faults, keys and discoveries.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod budget;
mod discovery;
mod faults;
mod places;
mod router;
mod sharing;
mod support;
mod turns;
