//! Fuzz targets of the stored forms of broker mode.

pub use crate::election::fuzz::broker_record;
pub use crate::json::fuzz::json_document;
pub use crate::rows::fuzz::{slate_key, slate_row};
