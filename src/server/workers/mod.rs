//! The service for workers.
