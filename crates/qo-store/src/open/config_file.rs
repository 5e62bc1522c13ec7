//! Reading of configuration and credentials files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::OpenError;

/// Far more than the size of any configuration file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The text of a file, or `None` if it does not exist.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, OpenError> {
    let unreadable = |reason: String| OpenError::UnreadableFile {
        path: path.to_owned(),
        reason,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if u64::try_from(bytes.len()).is_ok_and(|read| read > MAX_FILE_BYTES) {
        return Err(unreadable("it is larger than 1 MiB".to_owned()));
    }
    // The conversion error contains the bytes, which may be a key.
    let text =
        String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8 text".to_owned()))?;
    Ok(Some(text))
}
