//! Request prices.

use serde::{Deserialize, Serialize};

use super::operation::Operation;

/// Dollars per thousand requests of each class. The default is S3 Standard in us-east-1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Prices {
    /// PUT, COPY and POST.
    pub write_per_1000: f64,
    /// LIST.
    pub list_per_1000: f64,
    /// GET and HEAD, with or without a response body.
    pub read_per_1000: f64,
    /// DELETE, and aborting a multipart upload.
    pub delete_per_1000: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            write_per_1000: 0.005,
            list_per_1000: 0.005,
            read_per_1000: 0.0004,
            delete_per_1000: 0.0,
        }
    }
}

impl Prices {
    /// Dollars for one request. A failed condition costs the same as a success.
    pub fn of(&self, operation: Operation) -> f64 {
        let per_1000 = match operation {
            Operation::Put
            | Operation::Create
            | Operation::Swap
            | Operation::Copy
            | Operation::MultipartStart
            | Operation::MultipartPart
            | Operation::MultipartComplete => self.write_per_1000,
            Operation::Get | Operation::Head => self.read_per_1000,
            Operation::List => self.list_per_1000,
            Operation::Delete | Operation::MultipartAbort => self.delete_per_1000,
        };
        per_1000 / 1_000.0
    }
}
