//! All orders of a few steps.
