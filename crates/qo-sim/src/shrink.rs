//! The smallest run that still fails.
