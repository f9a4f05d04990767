//! The transactional outbox and inbox for Rust services.
