//! The encodings of signed requests: percent-encoding in URLs, base64 in checksums.

/// Encodes all but the unreserved characters and, optionally, slashes: the canonical form for signatures.
pub(super) fn percent_encode(text: &str, keep_slashes: bool) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~')
            || (keep_slashes && byte == b'/')
        {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    encoded
}

/// Decodes a key from a list with `encoding-type=url`, in which a space is a plus sign. Invalid sequences stay
/// unchanged.
pub(super) fn percent_decode(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        rest = tail;
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                // Two hexadecimal digits always fit in a byte.
                decoded.push(u8::try_from(high * 16 + low).unwrap_or(b'%'));
                rest = &tail[2..];
            }
            (b'+', ..) => decoded.push(b' '),
            (other, ..) => decoded.push(*other),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Base64 with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| usize::from(chunk.get(at).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..4 {
            if position <= chunk.len() {
                let index = group >> (18 - 6 * position) & 63;
                encoded.push(char::from(ALPHABET[index]));
            } else {
                encoded.push('=');
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_standard_examples() {
        // RFC 4648, section 10.
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn percent_signs_round_trip() {
        let odd = "a/b c+d%25=&é?\u{1}~";
        assert_eq!(percent_decode(&percent_encode(odd, false)), odd);
        assert_eq!(percent_decode(&percent_encode(odd, true)), odd);
        assert_eq!(percent_encode("a/b c+é", true), "a/b%20c%2B%C3%A9");
        assert_eq!(percent_encode("a/b", false), "a%2Fb");
        assert_eq!(percent_decode("a+b%2"), "a b%2");
        assert_eq!(percent_decode("%zz%"), "%zz%");
    }
}
