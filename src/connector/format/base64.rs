//! BYTES as text: standard base64 with padding (RFC 4648), as Flink's JSON has it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the text of `bytes`.
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..4 {
            let sextet = (word >> (18 - 6 * index)) & 63;
            out.push(if index <= chunk.len() { ALPHABET[sextet as usize] } else { b'=' });
        }
    }
}

/// Appends the bytes of `text`; `None` if it is no base64, with `out` as it was.
pub(super) fn decode(out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    let before = out.len();
    let done = decode_all(out, text);
    if done.is_none() {
        out.truncate(before);
    }
    done
}

fn decode_all(out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    for chunk in text[..text.len() - padding].chunks(4) {
        if chunk.len() == 1 {
            return None;
        }
        let mut word = 0_u32;
        for byte in chunk {
            word = word << 6 | u32::from(sextet(*byte)?);
        }
        word <<= 6 * (4 - chunk.len());
        let bytes = word.to_be_bytes();
        out.extend_from_slice(&bytes[1..chunk.len()]);
    }
    Some(())
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode(&mut out, plain.as_bytes());
            assert_eq!(out, coded.as_bytes());
            let mut back = Vec::new();
            decode(&mut back, coded.as_bytes()).unwrap();
            assert_eq!(back, plain.as_bytes());
        }
        for bad in ["Z", "Zg=", "Zm9v=", "Z===", "Zm9*"] {
            assert_eq!(decode(&mut Vec::new(), bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let (mut text, mut back) = (Vec::new(), Vec::new());
            encode(&mut text, &bytes);
            prop_assert!(decode(&mut back, &text).is_some());
            prop_assert_eq!(back, bytes);
        }
    }
}
